"""Checkpoints: every dtype survives, equal trees give equal bytes, a failed write harms nothing, others are refused."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from adatemp._checkpoint import load, read_about, save


def tree():
    return {
        "bfloat16": jnp.asarray([1.5, -2.25, jnp.inf], jnp.bfloat16),
        "float8": jnp.asarray([0.5, 448.0], jnp.float8_e4m3fn),
        "float32": jnp.asarray([[1e-45, np.nan]], jnp.float32),
        "int": jnp.asarray([-3, 7], jnp.int8),
        "bool": jnp.asarray(True),
        "keys": jax.random.split(jax.random.key(5), 3),
        "other keys": jax.random.key(5, impl="rbg"),
        "nested": [np.arange(3.0), (jnp.zeros((0, 2)),)],
    }


def bits(leaf):
    leaf = jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf
    return np.asarray(leaf).dtype, np.shape(leaf), np.asarray(leaf).tobytes()


def test_every_dtype_comes_back_bit_for_bit(tmp_path):
    saved = tree()
    save(tmp_path / "t.npz", saved)
    loaded = load(tmp_path / "t.npz", jax.tree.map(lambda leaf: leaf, saved))
    assert jax.tree.structure(loaded) == jax.tree.structure(saved)
    for before, after in zip(jax.tree.leaves(saved), jax.tree.leaves(loaded)):
        assert bits(before) == bits(after)
        assert type(before) is type(after)
    # A key is usable, not only equal: the same numbers come out.
    np.testing.assert_array_equal(
        jax.random.normal(loaded["other keys"], (4,)), jax.random.normal(saved["other keys"], (4,))
    )


def test_bfloat16_is_stored_as_uint16_and_nothing_is_pickled(tmp_path):
    save(tmp_path / "t.npz", {"x": jnp.asarray([1.5], jnp.bfloat16)})
    with np.load(tmp_path / "t.npz", allow_pickle=False) as file:
        # 1.5 in bfloat16: sign 0, exponent 127, first fraction bit set.
        assert file["leaf0000"].dtype == np.uint16 and file["leaf0000"][0] == 0x3FC0


def test_equal_trees_give_equal_bytes_and_what_is_said_comes_back(tmp_path):
    for name in "ab":
        save(tmp_path / f"{name}.npz", tree(), about={"done": 3, "why": "β"})
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    assert read_about(tmp_path / "a.npz") == {"done": 3, "why": "β"}


def test_a_write_that_fails_leaves_the_old_file_and_no_rubbish(tmp_path, monkeypatch):
    path = tmp_path / "t.npz"
    save(path, {"x": jnp.ones(2)})
    before = path.read_bytes()

    def full_disk(file, **arrays):
        file.write(b"half of it")
        raise OSError("no space left")

    monkeypatch.setattr(np, "savez", full_disk)
    with pytest.raises(OSError, match="no space"):
        save(path, {"x": jnp.zeros(2)})
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("like", "complaint"),
    [
        ({"x": jnp.ones(3)}, r"\['x'\] is float32\[2\] in the file and float32\[3\] here"),
        ({"x": jnp.ones(2, jnp.bfloat16)}, "float32.* in the file and bfloat16"),
        ({"y": jnp.ones(2)}, r"lacks .*'y'.* and has .*'x'"),
        ({"x": jax.random.key(0)}, "key<fry>"),
    ],
)
def test_another_tree_is_refused_with_the_difference_named(tmp_path, like, complaint):
    save(tmp_path / "t.npz", {"x": jnp.ones(2)})
    with pytest.raises(ValueError, match=complaint):
        load(tmp_path / "t.npz", like)


def test_files_of_others_are_refused(tmp_path):
    np.savez(tmp_path / "other.npz", x=np.ones(2))
    (tmp_path / "text.npz").write_text("not an archive")
    np.savez(tmp_path / "pickle.npz", header=np.array([{"a": 1}], dtype=object))
    for name in ("other", "text", "pickle"):
        with pytest.raises(ValueError, match="not a checkpoint"):
            read_about(tmp_path / f"{name}.npz")
    with pytest.raises(FileNotFoundError):
        read_about(tmp_path / "absent.npz")


def test_what_is_not_an_array_is_refused(tmp_path):
    with pytest.raises(TypeError, match=r"\['f'\].*object is not an array"):
        save(tmp_path / "t.npz", {"f": object()})
    assert list(tmp_path.iterdir()) == []

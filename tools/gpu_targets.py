"""GPUs that the kernels are compiled for without owning one: what the compiler has to be told of each."""

from __future__ import annotations

from typing import NamedTuple


class Gpu(NamedTuple):
    """One GPU; numbers from NVIDIA's data sheets and from the technical specifications of the CUDA programming guide.

    Attributes:
        name: As the driver reports it.
        capability: Compute capability, (major, minor).
        cores: Streaming multiprocessors.
        shared_memory: Bytes of shared memory of a multiprocessor.
        shared_memory_block: Most bytes of it that one block may have.
        threads: Most threads on a multiprocessor.
        l2: Bytes of second-level cache.
        bandwidth: Bytes a second from memory.
        clock: GHz.
        memory: Bytes.
    """

    name: str
    capability: tuple[int, int]
    cores: int
    shared_memory: int
    shared_memory_block: int
    threads: int
    l2: int
    bandwidth: int
    clock: float
    memory: int

    @property
    def architecture(self) -> str:
        """As the compiler names it: sm_80 and so on."""
        return "sm_{}{}".format(*self.capability)

    @property
    def description(self) -> str:
        """The compiler's own description of a device, a GpuTargetConfigProto as text."""
        major, minor = self.capability
        # wgmma, Hopper's matrix product, is among the features that are bound to one architecture.
        extension = " feature_extension: ACCELERATED_FEATURES" if major >= 9 else ""
        return f"""
            gpu_device_info {{
              threads_per_block_limit: 1024  threads_per_warp: 32  threads_per_core_limit: {self.threads}
              shared_memory_per_block: 49152  shared_memory_per_block_optin: {self.shared_memory_block}
              shared_memory_per_core: {self.shared_memory}
              registers_per_core_limit: 65536  registers_per_block_limit: 65536
              core_count: {self.cores}  fpus_per_core: {64 if minor == 0 and major == 8 else 128}
              block_dim_limit_x: 2147483647  block_dim_limit_y: 65535  block_dim_limit_z: 65535
              memory_bandwidth: {self.bandwidth}  l2_cache_size: {self.l2}
              clock_rate_ghz: {self.clock}  device_memory_size: {self.memory}
              cuda_compute_capability {{ major: {major} minor: {minor}{extension} }}
            }}
            platform_name: "CUDA"
            dnn_version_info {{ major: 9 minor: 10 patch: 0 }}
            device_description_str: "{self.name}"
        """


GPUS = {
    gpu.architecture: gpu
    for gpu in (
        Gpu("NVIDIA A100-SXM4-40GB", (8, 0), 108, 167936, 166912, 2048, 41943040, 1555200000000, 1.41, 42331013120),
        Gpu("NVIDIA L4", (8, 9), 58, 102400, 101376, 1536, 50331648, 300000000000, 2.04, 23000000000),
        Gpu("NVIDIA H200", (9, 0), 132, 233472, 232448, 2048, 52428800, 4800000000000, 1.98, 151397597184),
        Gpu("Tesla T4", (7, 5), 40, 65536, 65536, 1024, 4194304, 320000000000, 1.59, 15800000000),
    )
}

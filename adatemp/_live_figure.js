// Moves a live figure: the sliders choose a frame, and the parts of the picture that differ are exchanged.
(root => {
  const data = JSON.parse(root.querySelector("script[type='application/json']").textContent);
  const svg = root.querySelector("svg");
  const slots = [...svg.querySelectorAll("[data-part]")];
  const inputs = [...root.querySelectorAll("input")];
  const said = root.querySelector(".adatemp-said");
  let shown = data.start, saying;

  const show = () => {
    let frame = 0;
    inputs.forEach((input, i) => {
      const text = data.values[i][input.value];
      frame = frame * data.values[i].length + Number(input.value);
      input.setAttribute("aria-valuetext", text);
      input.closest("div").querySelector("output").textContent = text;
    });
    if (frame === shown) return;
    slots.forEach((slot, i) => {
      const part = data.frames[frame][i];
      if (part !== data.frames[shown][i]) slot.innerHTML = data.parts[i][part];
    });
    shown = frame;
    svg.setAttribute("aria-label", data.alts[frame]);
    // A screen reader hears the picture described once the slider rests, not at each step on the way.
    clearTimeout(saying);
    said.textContent = "";
    saying = setTimeout(() => {
      said.textContent = data.alts[frame];
      saying = setTimeout(() => { said.textContent = ""; }, 5000);
    }, 700);
  };

  // Notebooks and sites bind the arrow keys; while a slider has the focus its own keys are its own.
  const own = /^(Arrow|Page|Home|End)/;
  const keep = event => {
    if (own.test(event.key) && inputs.includes(event.target)) event.stopPropagation();
  };
  for (const input of inputs) {
    input.addEventListener("input", show);
    input.addEventListener("focus", () => window.addEventListener("keydown", keep, true));
    input.addEventListener("blur", () => window.removeEventListener("keydown", keep, true));
  }
  root.querySelector(".adatemp-controls").hidden = false;
  root.querySelector(".adatemp-still").remove();
  show();
})(document.currentScript.parentElement);

// A formula or a table wider than the page scrolls in a box of its own. The keyboard reaches such a box only if it takes
// the focus, so those that do scroll are made to.
window.addEventListener("load", async () => {
  await window.MathJax?.startup?.promise;
  const mark = () => {
    for (const box of document.querySelectorAll("article mjx-container[display='true'], article div.math, article .text_html")) {
      if (box.scrollWidth > box.clientWidth && getComputedStyle(box).overflowX === "auto") box.tabIndex = 0;
      else box.removeAttribute("tabindex");
    }
  };
  mark();
  window.addEventListener("resize", mark);
});

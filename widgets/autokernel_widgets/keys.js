// JupyterLab looks for its shortcuts at the element that has the focus before it looks at what surrounds it, so the
// mark on a widget's root does not keep it from taking `d d` or `x` from a focused button or box.  A listener of the
// window is asked before JupyterLab's, which is the document's.
if (!window.__autokernel_keys) {
  window.__autokernel_keys = true;
  window.addEventListener("keydown", ({ target }) => {
    if (target.closest?.(".ak-root")) target.setAttribute("data-lm-suppress-shortcuts", "true");
  }, true);
}

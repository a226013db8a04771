// What scrolls sideways can be reached by keyboard.
for (const part of document.querySelectorAll(".md-typeset__scrollwrap, .highlight-ipynb, .highlight-ipynb pre, .jp-RenderedText pre, pre > code")) {
  part.tabIndex = 0;
}

// What scrolls sideways can be reached by keyboard. Tables are wrapped after the page has loaded, so new parts count too.
const SCROLLS = ".md-typeset__scrollwrap, .highlight-ipynb, .highlight-ipynb pre, .jp-RenderedText pre, pre > code";
const reachable = () => document.querySelectorAll(SCROLLS).forEach((part) => { part.tabIndex = 0; });
reachable();
new MutationObserver(reachable).observe(document.body, { childList: true, subtree: true });

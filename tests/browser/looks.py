"""What a browser test looks for in a page: widgets that are too wide, and text that is too faint to read."""

from __future__ import annotations

OVERFLOWING = """() => [...document.querySelectorAll('.ak-root')].filter((one) => one.scrollWidth > one.clientWidth + 1)
  .map((one) => one.className)"""
NAMELESS = """(selector) => [...document.querySelectorAll(selector)].filter((one) => one.offsetParent)
  .filter((one) => !(one.getAttribute('aria-label') || one.getAttribute('title') || one.textContent.trim()
    || one.closest('label')?.textContent.trim()))
  .map((one) => one.outerHTML.slice(0, 200))"""
TOO_FAINT = """(selector) => {
  // A mixed colour is written as color(srgb 0.1 0.2 0.3), with parts up to 1.
  const channel = (text) => text.match(/[\\d.]+/g).map(Number)
    .map((one, index) => text.startsWith('color(srgb') && index < 3 ? one * 255 : one);
  const light = ([r, g, b]) => [r, g, b].map((one) => one / 255)
    .map((one) => one <= 0.03928 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4)
    .reduce((sum, one, index) => sum + one * [0.2126, 0.7152, 0.0722][index], 0);
  const back = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const colour = channel(getComputedStyle(one).backgroundColor);
      if (colour.length < 4 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const shown = [...document.querySelectorAll(selector)].filter((one) => one.offsetParent && one.innerText);
  const found = shown.map((one) => {
    const [ink, paper] = [channel(getComputedStyle(one).color), back(one)];
    const mixed = paper.slice(0, 3).map((channel, index) => channel + (ink[index] - channel) * (ink[3] ?? 1));
    const [a, b] = [light(mixed), light(paper)].sort((x, y) => y - x);
    return [(a + 0.05) / (b + 0.05), one.innerText.slice(0, 60)];
  });
  return found.filter(([ratio]) => ratio < 4.5);
}"""

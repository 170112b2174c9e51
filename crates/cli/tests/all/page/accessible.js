// Returns the faults of the page for people with a screen reader, a keyboard or weak eyes. [WCAG 2.2]

const faults = [];
const visible = (element) => element.checkVisibility({ visibilityProperty: true, opacityProperty: true });
const all = (selector) => [...document.querySelectorAll(selector)].filter(visible);
const shown = (element) => `<${element.tagName.toLowerCase()} id="${element.id}" class="${element.className}"> "${element.textContent.trim().slice(0, 30)}"`;

// Language, title, landmarks, headings.
if (!document.documentElement.lang) faults.push('no language');
if (!document.title) faults.push('no title');
for (const landmark of ['header', 'main']) if (all(landmark).length !== 1) faults.push(`not one ${landmark}`);
const levels = all('h1, h2, h3').map((heading) => Number(heading.tagName[1]));
if (levels.filter((level) => level === 1).length !== 1) faults.push('not one h1');
levels.forEach((level, i) => {
  if (i > 0 && level > levels[i - 1] + 1) faults.push(`heading ${level} after ${levels[i - 1]}`);
});

// References and tables.
const ids = [...document.querySelectorAll('[id]')].map(({ id }) => id);
for (const id of ids) if (ids.indexOf(id) !== ids.lastIndexOf(id)) faults.push(`two elements with id ${id}`);
for (const attribute of ['aria-labelledby', 'aria-describedby', 'for']) {
  for (const element of document.querySelectorAll(`[${attribute}]`)) {
    if (!document.getElementById(element.getAttribute(attribute))) faults.push(`${attribute} of ${shown(element)} names nothing`);
  }
}
for (const table of all('table')) {
  const heads = [...table.querySelectorAll('thead th')].filter(visible);
  if (heads.some((head) => head.scope !== 'col' || !head.textContent)) faults.push(`heading of ${shown(table)}`);
  for (const row of [...table.tBodies[0].rows].filter((it) => visible(it) && !it.className.includes('spacer'))) {
    if ([...row.cells].filter(visible).length !== heads.length) faults.push(`cells of ${shown(row)}`);
  }
}

// Contrast of texts.
const channels = (color) => (color.match(/[\d.]+/g) ?? []).map(Number);
const over = ([r, g, b, a = 1], ground) => [r, g, b].map((it, i) => it * a + ground[i] * (1 - a));
const light = (color) => {
  const [r, g, b] = color.map((it) => (it / 255 <= 0.04045 ? it / 255 / 12.92 : ((it / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const groundOf = (element) => {
  const chain = [];
  for (let it = element; it; it = it.parentElement) chain.unshift(channels(getComputedStyle(it).backgroundColor));
  return chain.reduce((ground, color) => over(color, ground), [255, 255, 255]);
};
const hasText = (element) => [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim());
let checked = 0;
for (const element of all('body *').filter(hasText)) {
  if (element.matches(':disabled, noscript')) continue;
  const style = getComputedStyle(element);
  for (let it = element; it; it = it.parentElement) {
    if (getComputedStyle(it).opacity !== '1') faults.push(`${shown(element)} is translucent`);
  }
  const ground = groundOf(element);
  const color = over(channels(element instanceof SVGElement ? style.fill : style.color), ground);
  const [dark, bright] = [light(ground), light(color)].sort((a, b) => a - b);
  const contrast = (bright + 0.05) / (dark + 0.05);
  if (contrast < 4.5) faults.push(`contrast ${contrast.toFixed(2)} of ${shown(element)}`);
  checked += 1;
}
if (checked < 8) faults.push(`only ${checked} texts`);

// Nothing is wider than the window.
if (document.documentElement.scrollWidth > innerWidth) faults.push(`scrolls sideways: ${document.documentElement.scrollWidth} of ${innerWidth}`);
return faults;

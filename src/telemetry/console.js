// Keeps the page fresh and copies configuration; everything else works without it.
'use strict';

// Milliseconds. More often shows nothing new, for figures change per window; less often looks stale.
const EVERY = 5000;

function mark() {
  const id = decodeURIComponent(location.hash.slice(1));
  document.querySelectorAll('.point.target').forEach((point) => point.classList.remove('target'));
  const point = id && document.getElementById(id);
  if (point && point.classList.contains('point')) point.classList.add('target');
}

function wake() {
  document.querySelectorAll('button[data-copy]').forEach((button) => { button.hidden = false; });
  mark();
}

async function refresh() {
  // Whoever has selected something is about to copy it.
  if (document.hidden || String(getSelection()) !== '') return;
  let page;
  try {
    const response = await fetch(location.pathname + location.search, { cache: 'no-store' });
    if (!response.ok) return;
    page = new DOMParser().parseFromString(await response.text(), 'text/html');
  } catch {
    document.getElementById('stale').hidden = false;
    document.body.classList.add('stale');
    return;
  }
  document.body.classList.remove('stale');
  const open = [...document.querySelectorAll('details[open]')].map((details) => details.id);
  const focused = document.activeElement && (document.activeElement.id || document.activeElement.closest('details')?.id);
  for (const part of ['header', 'main']) document.querySelector(part).replaceWith(page.querySelector(part));
  open.forEach((id) => { const details = document.getElementById(id); if (details) details.open = true; });
  if (focused) {
    const again = document.getElementById(focused);
    (again && again.querySelector(':scope > summary') || again)?.focus({ preventScroll: true });
  }
  wake();
}

document.addEventListener('click', (event) => {
  const button = event.target.closest('button[data-copy]');
  if (!button) return;
  const text = document.getElementById(button.dataset.copy).textContent;
  navigator.clipboard.writeText(text).then(() => { button.textContent = 'Copied'; }, () => { button.hidden = true; });
});
addEventListener('hashchange', mark);
wake();
setInterval(refresh, EVERY);

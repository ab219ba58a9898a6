// What the page does in the browser: sliders, copying, dropping a model, drawing charts.
'use strict';
const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const by = (id) => document.getElementById(id);

let drawing = null;
function draw() {
  if (!document.querySelector('.chart:empty')) return;
  if (window.drawCharts) { window.drawCharts(document); return; }
  if (drawing) return;
  drawing = document.createElement('script');
  drawing.src = '/static/charts.js';
  drawing.type = 'module';
  drawing.onload = () => window.drawCharts(document);
  document.head.append(drawing);
}

// A slider goes through the values of its ladder and writes them into its field.
function place(slider) {
  const steps = slider.dataset.steps.split(' ');
  const at = steps.indexOf(by(slider.dataset.for).value);
  slider.max = steps.length;
  slider.hidden = false;
  slider.value = at < 0 ? steps.length : at;
  tell(slider);
}
function tell(slider) {
  slider.setAttribute('aria-valuetext', by(slider.dataset.for).value || 'no limit');
}
function slide(slider) {
  const steps = slider.dataset.steps.split(' ');
  by(slider.dataset.for).value = steps[Number(slider.value)] || '';
  tell(slider);
  slider.form.dispatchEvent(new CustomEvent('slid', {bubbles: true}));
}

const open = new Set();
function settle() {
  const answer = by('answer');
  if (answer) {
    answer.setAttribute('aria-busy', 'false');
    const said = answer.querySelector('.headline, .refusal');
    if (said) by('said').textContent = said.textContent;
    for (const id of open) { const part = by(id); if (part && !part.open) part.open = true; }
  }
  draw();
}

async function take(file) {
  const reply = await fetch('/upload?name=' + encodeURIComponent(file.name),
    {method: 'POST', body: file, headers: {'HX-Request': 'true'}});
  if (reply.redirected) location = reply.url;
  else by('answer').innerHTML = await reply.text();
}

document.addEventListener('input', (event) => {
  const slider = event.target;
  if (slider.matches('.slider')) slide(slider);
  if (slider.id === 'f-model') slider.dispatchEvent(new CustomEvent('typed'));
});
document.addEventListener('change', (event) => {
  if (event.target.id === 'file' && event.target.files[0]) take(event.target.files[0]);
  all('.slider').filter((one) => one.dataset.for === event.target.id).forEach(place);
}, true);
document.addEventListener('change', (event) => {
  // A slider has no value of its own: its field has been asked for already.
  if (event.target.matches('.slider, #file')) event.stopPropagation();
}, true);
document.addEventListener('toggle', (event) => {
  if (!event.target.id) return;
  if (event.target.open) open.add(event.target.id); else open.delete(event.target.id);
}, true);
document.addEventListener('click', async (event) => {
  const button = event.target.closest('[data-copy], [data-keep]');
  if (!button) return;
  if (button.dataset.copy) {
    await navigator.clipboard.writeText(button.dataset.copy);
    button.textContent = 'Copied';
  } else {
    by('f-keep').value = button.dataset.keep;
    button.textContent = 'Kept: change the goal, then compare';
  }
  by('said').textContent = button.textContent;
});
for (const kind of ['dragover', 'dragleave', 'drop']) {
  document.addEventListener(kind, (event) => {
    event.preventDefault();
    by('drop')?.classList.toggle('over', kind === 'dragover');
    if (kind === 'drop' && by('drop') && event.dataTransfer.files[0]) take(event.dataTransfer.files[0]);
  });
}
document.addEventListener('htmx:before:request', (event) => {
  if (event.target.id === 'ask') by('answer').setAttribute('aria-busy', 'true');
});
document.addEventListener('htmx:after:swap', settle);
document.addEventListener('htmx:error', () => {
  by('answer')?.setAttribute('aria-busy', 'false');
  by('said').textContent = 'paceline web does not answer: is it still running?';
});
all('.slider').forEach(place);
settle();

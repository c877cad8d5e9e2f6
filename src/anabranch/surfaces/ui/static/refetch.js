// Tables that would be too much to send with every change: they are asked for again, seldom, and not
// while a person is inside them.
const REST = 1500;

export function startRefetching() {
  const place = document.querySelector("[data-refetch]");
  if (!place) return null;
  let waiting = false;
  const ask = async () => {
    waiting = false;
    if (isUsed(place)) {
      later();
      return;
    }
    const answer = await fetch(place.dataset.refetch).catch(() => null);
    if (!answer?.ok || answer.redirected || isUsed(place)) return;
    const parsed = new DOMParser().parseFromString(await answer.text(), "text/html");
    place.replaceChildren(...parsed.body.childNodes);
  };
  const later = () => {
    if (waiting) return;
    waiting = true;
    setTimeout(ask, REST);
  };
  return later;
}

// The keyboard is in it, a text of it is marked, or something in it was opened to be read.
function isUsed(place) {
  const marked = document.getSelection();
  return place.contains(document.activeElement)
    || (marked && !marked.isCollapsed && place.contains(marked.anchorNode))
    || place.querySelector("td details[open]") !== null;
}

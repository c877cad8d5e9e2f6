// How many questions are open, beside the link to them: asked now and then, while the page is seen.
// Not by a stream: browsers allow a site only a few connections, and the pages of runs need theirs.
const EVERY = 10_000;

export function startCount() {
  const place = document.getElementById("open-approvals");
  if (!place) return;
  const ask = async () => {
    if (document.hidden) return;
    const answer = await fetch(place.dataset.source).catch(() => null);
    if (!answer?.ok || answer.redirected) return;
    const { open } = await answer.json();
    place.hidden = !open;
    place.firstChild.data = open > 99 ? "99+" : String(open);
  };
  ask();
  setInterval(ask, EVERY);
  document.addEventListener("visibilitychange", ask);
}

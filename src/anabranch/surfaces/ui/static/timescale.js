// How instants lie on a timeline: evenly, or with the time folded in which nothing is at work.
const WORK = new Set(["running", "loop"]);
const SMALLEST_MS = 5;
const FOLD_PART = 0.08; // of all work: so wide is a fold,
const FOLD_FROM = 2; // and so many times longer is what is folded

const bounds = (lanes, started, now) => {
  const start = lanes.length ? Math.min(...lanes.map((lane) => lane.start)) : started;
  const end = Math.max(start + SMALLEST_MS, ...lanes.map((lane) => lane.end || now));
  return [start, end];
};

export function plainScale(lanes, started, now) {
  const [start, end] = bounds(lanes, started, now);
  return scaleOf([{ start, end, folded: false }]);
}

export function foldedScale(lanes, started, now) {
  const [start, end] = bounds(lanes, started, now);
  const busy = merged(lanes.flatMap((lane) => lane.segments
    .filter(([kind]) => WORK.has(kind))
    .map(([, from, until]) => [from, Math.max(until || lane.end || now, from + 1)])));
  const work = busy.reduce((sum, [from, until]) => sum + until - from, 0);
  if (!work) return plainScale(lanes, started, now);
  const fold = Math.max(SMALLEST_MS, work * FOLD_PART);
  const pieces = [];
  let at = start;
  // A part of what is folded stays beside the work, so that one sees how the waiting begins and ends.
  const idle = (until) => {
    const length = until - at;
    if (length > FOLD_FROM * fold) {
      const edge = fold / 4;
      pieces.push({ start: at, end: at + edge, folded: false });
      pieces.push({ start: at + edge, end: until - edge, folded: true, width: fold });
      pieces.push({ start: until - edge, end: until, folded: false });
    } else if (length > 0) pieces.push({ start: at, end: until, folded: false });
  };
  for (const [from, until] of busy) {
    if (from > at) idle(from);
    pieces.push({ start: Math.max(at, from), end: until, folded: false });
    at = Math.max(at, until);
  }
  if (end > at) idle(end);
  return scaleOf(joined(pieces));
}

// Stretches that touch become one.
function merged(stretches) {
  const found = [];
  for (const [from, until] of stretches.sort((a, b) => a[0] - b[0])) {
    const last = found.at(-1);
    if (last && from <= last[1]) last[1] = Math.max(last[1], until);
    else found.push([from, until]);
  }
  return found;
}

function joined(pieces) {
  const found = [];
  for (const piece of pieces) {
    const last = found.at(-1);
    if (last && !last.folded && !piece.folded) last.end = piece.end;
    else found.push({ ...piece });
  }
  return found;
}

// `of` says where an instant lies, from 0 to `length`.
function scaleOf(pieces) {
  let length = 0;
  for (const piece of pieces) {
    piece.left = length;
    length += piece.folded ? piece.width : piece.end - piece.start;
    piece.right = length;
  }
  const of = (at) => {
    const piece = pieces.find((one) => at <= one.end) ?? pieces.at(-1);
    const part = (at - piece.start) / Math.max(1e-9, piece.end - piece.start);
    return piece.left + Math.min(Math.max(part, 0), 1) * (piece.right - piece.left);
  };
  return { pieces, length, of };
}

// What the server tells a page while that is open. A browser left to itself asks for the same
// address again, and never again once a proxy has answered for a server that is away.
const FIRST = 1000; // milliseconds until it is tried again, the first time; then twice as long
const LONGEST = 10000;

// `heard`: event → what is done with its data. `addressOf` is asked for each connection.
// Returns how to stop; the event `end` stops it, too.
export function listen(addressOf, heard, told = () => {}) {
  let source, timer, pause = FIRST;
  const stop = () => {
    clearTimeout(timer);
    source.close();
  };
  const connect = () => {
    source = new EventSource(addressOf());
    source.addEventListener("open", () => {
      pause = FIRST;
      told("live");
    });
    source.addEventListener("error", () => {
      stop();
      told("not connected; trying again");
      timer = setTimeout(connect, pause);
      pause = Math.min(2 * pause, LONGEST);
    });
    source.addEventListener("end", () => {
      stop();
      told("");
    });
    for (const [name, hear] of Object.entries(heard)) {
      source.addEventListener(name, ({ data }) => hear(JSON.parse(data)));
    }
  };
  connect();
  return stop;
}

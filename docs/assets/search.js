// The search takes a hyphen before a word as "without", and one between words as "or". Ask for all words of --an-option,
// and for the tag of the page that describes it (_commands.py).
const post = Worker.prototype.postMessage
Worker.prototype.postMessage = function (message, ...rest) {
  const isOption = typeof message.data === "string" && message.data.startsWith("-")
  const words = isOption && message.data.split(/[-\s]+/).filter(Boolean)
  const query = words && [`flag_${words.join("_")}*^1000`, ...words.map((word) => `+${word}*`)].join(" ")
  return post.call(this, words ? { ...message, data: query } : message, ...rest)
}

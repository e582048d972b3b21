// The search takes a hyphen before a word as "without", and one between words as "or". Ask for all words of --an-option.
const post = Worker.prototype.postMessage
Worker.prototype.postMessage = function (message, ...rest) {
  const isOption = typeof message.data === "string" && message.data.startsWith("-")
  const words = isOption && message.data.split(/[-\s]+/).filter(Boolean)
  return post.call(this, words ? { ...message, data: words.map((word) => `+${word}*`).join(" ") } : message, ...rest)
}

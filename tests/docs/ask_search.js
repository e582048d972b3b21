// node ask_search.js SITE QUERY...: the address that the theme's own search worker puts first for each, as JSON.
const fs = require("fs"), path = require("path"), vm = require("vm")
const [site, ...queries] = process.argv.slice(2)
const folder = path.join(site, "assets/javascripts/workers")
const worker = fs.readdirSync(folder).find((name) => /^search\..*\.js$/.test(name))
let answer, handle
class Worker { postMessage(message) { return handle({ data: message }) } }
const page = { URL, Worker, location: { href: "file:///" }, importScripts() {}, postMessage: (message) => answer(message) }
page.self = page
page.addEventListener = (kind, listener) => { if (kind === "message") handle = listener }
vm.createContext(page)
vm.runInContext(fs.readFileSync(path.join(folder, worker), "utf8"), page)
vm.runInContext(fs.readFileSync(path.join(site, "assets/search.js"), "utf8"), page) // what we change of a query
const ask = (type, data) => new Promise((found) => { answer = found; new page.Worker().postMessage({ type, data }) })
const index = JSON.parse(fs.readFileSync(path.join(site, "search/search_index.json"), "utf8"))
const first = async () => {
  await ask(0, { ...index, options: { suggest: false } })
  const found = []
  for (const query of queries) found.push((await ask(2, query)).data.items[0]?.[0].location)
  console.log(JSON.stringify(found))
}
first()

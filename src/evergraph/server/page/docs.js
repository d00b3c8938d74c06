"use strict";

// The OpenAPI document for people. Everything comes from the service, and is put here as text.

const SUBJECTS = { learn: "Change the learner", ask: "Ask the learner", upkeep: "Upkeep" };
const byId = id => document.getElementById(id);

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// ---------------------------------------------------------------- text

const code = text => element("code", {}, text);
const withCode = text => text.split(/`+/).map((part, place) => place % 2 ? code(part) : part);
const paragraphs = text => (text || "").split("\n\n").map(part => element("p", {}, ...withCode(part)));
const joined = (parts, between) => parts.flatMap((part, place) => place ? [between, ...part] : part);
const breakable = path => joined(path.split("/").map(part => [part]), "/\u200b");

function aFieldALine(record) {
  const lines = Object.entries(record).map(([name, value]) => `  "${name}": ${JSON.stringify(value)}`);
  return `{\n${lines.join(",\n")}\n}`;
}

function typeOf(schema) {
  if (schema.$ref) {
    const name = schema.$ref.split("/").pop();
    return [element("a", { href: `#${name}` }, name)];
  }
  if (schema.anyOf) return joined(schema.anyOf.map(typeOf), " or ");
  if (schema.enum) return joined(schema.enum.map(value => [code(value)]), " or ");
  if (schema.prefixItems) return ["[", ...joined(schema.prefixItems.map(typeOf), ", "), "]"];
  if (schema.type === "array") {
    const inner = schema.items || {};
    return inner.anyOf ? ["list of (", ...typeOf(inner), ")"] : ["list of ", ...typeOf(inner)];
  }
  const bounded = "minimum" in schema && schema.maximum < 2 ** 53;
  const bounds = bounded ? `, ${schema.minimum} to ${schema.maximum.toLocaleString("en")}` : "";
  return [`${schema.type || "any value"}${bounds}`];
}

function about({ description = "", default: usual }) {
  const told = [undefined, null].includes(usual) || typeof usual === "object";
  return withCode(told ? description : `${description} By default \`${JSON.stringify(usual)}\`.`);
}

// ---------------------------------------------------------------- parts of the page

function table(rows) {
  const lines = rows.map(row => element("tr", {}, ...row.map(cell => element("td", {}, ...cell))));
  return element("div", { class: "scroll" }, element("table", { class: "list" }, ...lines));
}

function fieldsOf(schema) {
  const rows = Object.entries(schema.properties || {}).map(([name, field]) => {
    const needed = (schema.required || []).includes(name) ? [" ", element("small", {}, "required")] : [];
    return [[code(name), ...needed], typeOf(field), about(field)];
  });
  return rows.length ? [table(rows)] : [];
}

const anchorOf = (method, path) => [method, ...path.match(/\w+/g) || []].join("-");
const named = (method, path) => [
  element("b", { class: `method ${method}` }, method.toUpperCase()), " ",
  element("code", {}, ...breakable(path)),
];

function routeOf(method, path, route) {
  const token = route.security ? "needs a token, where the service has tokens" : "open to all";
  const title = element("h3", {}, ...named(method, path), " ", element("span", { class: "soft" }, token));
  const parts = [title, ...paragraphs(route.description)];
  if (route.parameters) {
    const rows = route.parameters.map(each =>
      [[code(each.name), " ", element("small", {}, `in ${each.in}`)], typeOf(each.schema),
       about({ description: each.description, default: each.schema.default })]);
    parts.push(element("h4", {}, "Parameters"), table(rows));
  }
  for (const [kind, { schema }] of Object.entries(route.requestBody?.content || {})) {
    parts.push(element("h4", {}, "Body: ", code(kind)), ...fieldsOf(schema));
    if (schema.example) parts.push(element("pre", {}, aFieldALine(schema.example)));
  }
  const answers = Object.entries(route.responses).map(([status, reply]) => {
    const kinds = Object.entries(reply.content || {}).map(([kind, { schema }]) =>
      kind === "application/json" ? typeOf(schema) : [code(kind)]);
    return [[code(status)], joined(kinds, ", "), withCode(reply.description)];
  });
  parts.push(element("details", {}, element("summary", {}, "Answers"), table(answers)));
  return element("article", { class: "card", id: anchorOf(method, path) }, ...parts);
}

function show(page) {
  byId("version").textContent = `${page.info.title} ${page.info.version}`;
  byId("about").append(...paragraphs(page.info.description));
  const routes = Object.entries(page.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, route]) => [method, path, route]));
  for (const [tag, subject] of Object.entries(SUBJECTS)) {
    const own = routes.filter(([, , route]) => route.tags[0] === tag);
    const links = own.map(([method, path]) =>
      element("li", {}, element("a", { href: `#${anchorOf(method, path)}` }, ...named(method, path))));
    byId("menu").append(element("div", {}, element("h2", {}, subject), element("ul", {}, ...links)));
    const articles = own.map(route => routeOf(...route));
    byId("main").append(element("section", { id: tag }, element("h2", {}, subject), ...articles));
  }
  const records = Object.entries(page.components.schemas).map(([name, schema]) =>
    element("details", { class: "card", id: name }, element("summary", {}, name),
            ...paragraphs(schema.description), ...fieldsOf(schema)));
  byId("main").append(element("section", { id: "records" }, element("h2", {}, "Records"), ...records));
  byId(location.hash.slice(1))?.scrollIntoView();
}

fetch("/openapi.json").then(answer => answer.json()).then(show);

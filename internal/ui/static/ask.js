// How the service is asked. The token is kept for this tab alone, and shown by this script only: a browser
// adds it to no request by itself, so that no other page can use it.

const tokenKey = "ratelimitd-token";

export const token = {
  get: () => sessionStorage.getItem(tokenKey),
  set: (text) => sessionStorage.setItem(tokenKey, text),
  forget: () => sessionStorage.removeItem(tokenKey),
};

const timeoutMs = 10_000;

// Refusal is an answer that is a problem of RFC 9457, or nothing that the service says.
export class Refusal extends Error {
  constructor(status, problem) {
    super([problem.field, problem.detail ?? `The service answered ${status}.`].filter(Boolean).join(": "));
    this.status = status;
  }
}

// ask sends a GET, or a POST of body, to a route beside the page, and returns what is answered, and as which request.
export async function ask(route, body) {
  const headers = {};
  if (token.get()) headers.Authorization = `Bearer ${token.get()}`;
  if (body) headers["Content-Type"] = "application/json";
  const response = await fetch(new URL(`../${route}`, import.meta.url), {
    method: body ? "POST" : "GET",
    headers,
    body: body && JSON.stringify(body),
    cache: "no-store",
    redirect: "error",
    signal: AbortSignal.timeout(timeoutMs),
  });
  const text = await response.text();
  let content = null;
  try {
    content = text ? JSON.parse(text) : null;
  } catch {
    content = {}; // a gateway's page
  }
  if (!response.ok) throw new Refusal(response.status, content ?? {});
  return { content, requestID: response.headers.get("X-Request-Id") };
}

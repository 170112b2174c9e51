// Requests to the API that served this page. The token is kept until the tab closes.

const KEY = 'switchyard-token';
const TIMEOUT_MS = 20_000;

let token = sessionStorage.getItem(KEY) ?? '';

/** An error response, or a target that did not respond (status 0). */
export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export const hasToken = () => token !== '';

export function setToken(text) {
  token = text;
  if (text) sessionStorage.setItem(KEY, text);
  else sessionStorage.removeItem(KEY);
}

/** Sends a request; returns its body and ETag. */
export async function request(method, path, body, ifMatch) {
  const headers = { Authorization: `Bearer ${token}` };
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  if (ifMatch) headers['If-Match'] = ifMatch;
  let response;
  let text;
  try {
    response = await fetch(path, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      cache: 'no-store',
      signal: AbortSignal.timeout(TIMEOUT_MS),
    });
    text = await response.text();
  } catch (error) {
    const why = error.name === 'TimeoutError' ? `no response within ${TIMEOUT_MS / 1000} s` : error.message;
    throw new ApiError(0, `the target does not respond (${why}); check that it runs`);
  }
  if (!response.ok) throw new ApiError(response.status, explained(text, response.status));
  return { body: text ? JSON.parse(text) : null, etag: response.headers.get('ETag') };
}

export const get = async (path) => (await request('GET', path)).body;

/** Returns the text of an error response. */
function explained(text, status) {
  let body;
  try {
    body = JSON.parse(text);
  } catch {
    return `status ${status}`;
  }
  const one = ({ key, error, what_to_do: remedy }) => `${key ? `${key}: ` : ''}${error}; ${remedy}`;
  // A single problem is the error itself.
  return body.problems?.length > 1 ? body.problems.map(one).join('\n') : one({ ...body, key: '' });
}

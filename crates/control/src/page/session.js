// A session with the API: the token, a request every 2 s while the page is visible, and errors.

import { ApiError, get, hasToken, setToken } from './api.js';
import { PERIOD_MS } from './model.js';
import { setText } from './table.js';

const find = (id) => document.getElementById(id);

/** Shows the parts of the page that need a token, or hides them. */
function reveal(isShown) {
  for (const id of ['content', 'session', 'sections']) find(id).hidden = !isShown;
  find('log-in').hidden = isShown;
}

export class Session {
  /** `begin` reads what stays, `refresh` reads and shows the rest, `forget` drops all of it. */
  constructor({ begin = async () => {}, refresh, forget }) {
    this.steps = { begin, refresh, forget };
    this.timer = 0;
    find('log-in-form').addEventListener('submit', (event) => {
      event.preventDefault();
      this.logIn(find('token').value.trim());
    });
    find('log-out').addEventListener('click', () => this.logOut());
    document.addEventListener('visibilitychange', () => {
      if (!document.hidden && hasToken()) this.tick();
    });
  }

  /** Goes on with the token of this tab, or asks for one. */
  start() {
    for (const heading of document.querySelectorAll('#content > section[id] h2')) {
      const link = document.createElement('a');
      link.href = `#${heading.closest('section').id}`;
      link.textContent = heading.textContent;
      find('sections').append(link);
    }
    if (!hasToken()) return this.logOut();
    return this.begin().catch((error) => (error.status === 401 ? this.logOut(error.message) : this.retry(error)));
  }

  async begin() {
    const { role } = await get('/v1/role');
    await this.steps.begin();
    document.body.classList.toggle('read-only', role !== 'change');
    find('read-only').hidden = role === 'change';
    reveal(true);
    await this.tick();
  }

  /** The process does not answer yet: tries again. */
  retry(error) {
    find('content').hidden = false;
    this.fail(error);
    setTimeout(() => this.begin().catch((next) => this.retry(next)), PERIOD_MS);
  }

  async logIn(token) {
    setToken(token);
    try {
      await this.begin();
      find('main').focus();
    } catch (error) {
      this.logOut(error.message);
    }
  }

  logOut(message = '') {
    setToken('');
    clearTimeout(this.timer);
    find('dialog').close();
    this.steps.forget();
    reveal(false);
    find('log-in-error').textContent = message;
    find('token').value = '';
    find('token').focus();
  }

  /** Refreshes now, and again after the period while the page is visible. */
  async tick() {
    clearTimeout(this.timer);
    try {
      await this.steps.refresh();
      find('problem').hidden = true;
      setText(find('state'), '● live');
      find('state').className = 'good';
    } catch (error) {
      this.fail(error);
    }
    clearTimeout(this.timer);
    if (hasToken() && !document.hidden) this.timer = setTimeout(() => this.tick(), PERIOD_MS);
  }

  fail(error) {
    if (error instanceof ApiError && error.status === 401) {
      this.logOut(error.message);
      return;
    }
    if (!(error instanceof ApiError)) console.error(error);
    find('problem').textContent = error.message;
    find('problem').hidden = false;
    setText(find('state'), '▲ no data');
    find('state').className = 'bad';
  }
}

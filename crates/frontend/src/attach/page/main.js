// The page of a process of front ends: asks the API every 2 s, and shows the answers.

import { Dialog, command, path } from './actions.js';
import { get, request } from './api.js';
import { bytes, duration, number, rate } from './model.js';
import { Session } from './session.js';
import { Table, numbers, setText } from './table.js';

const find = (id) => document.getElementById(id);

const STATES = { local: 'local', connected: '✓ connected', not_connected: '▲ not connected', gone: '▲ gone', not_started: '▲ not started' };
const STYLES = { connected: 'good', not_connected: 'warn', gone: 'bad', not_started: 'bad' };

const attachments = new Table(find('attachment-table'), {
  caption: 'Front ends',
  empty: 'There are no front ends.',
  key: ({ name }) => name,
  columns: [
    { title: 'Name', value: ({ name }) => name },
    { title: 'Front end', value: ({ kind }) => kind },
    { title: 'Address or path', value: ({ at }) => at.join(', '), optional: 2 },
    { title: 'Device', value: ({ device, read_only }) => (read_only ? `${device} (read-only)` : device), optional: 1 },
    { title: 'State', value: ({ state }) => state, show: (state, { error }) => (error ? `${STATES[state]}: ${error}` : STATES[state]), style: ({ state }) => STYLES[state] },
    numbers('Size', 'size_bytes', bytes, 2),
    { title: 'Class', value: ({ class: name }) => name, optional: 3 },
    numbers('Clients', 'clients', number, 1),
    numbers('Reads/s', 'readsPerSecond'),
    numbers('Writes/s', 'writesPerSecond'),
    numbers('Data', 'bytesPerSecond', rate, 1),
    numbers('In flight', 'outstanding', number, 2),
    numbers('Errors', 'errors', number, 1),
    { title: 'Change', buttons: [{ title: 'Detach…', label: ({ name }) => `Detach ${name}`, run: ({ name }) => detach(name) }] },
  ],
});

let before = null;

const session = new Session({
  refresh,
  forget: () => {
    before = null;
  },
});

const dialog = new Dialog(() => session.tick());

function detach(name) {
  const isForced = ({ force }) => force === 'yes';
  dialog.open({
    title: `Detach ${name}`,
    text: 'Outstanding requests have 10 s to finish. It stays detached until the process restarts or reads its file again.',
    fields: [{ name: 'force', label: 'Detach a device in use', hint: 'later requests of its clients fail', options: ['no', 'yes'] }],
    submit: 'Detach',
    isDanger: true,
    command: (values) => command('detach', name, ...(isForced(values) ? ['--force'] : [])),
    run: (values) => request('DELETE', path('attachments', name) + (isForced(values) ? '?force=true' : '')),
  });
}

/** The sums over the classes of an attachment, and their rates since the answer before. */
function rowOf(now, last, seconds) {
  const sum = (of, ...names) => of.classes.reduce((all, it) => names.reduce((total, name) => total + it[name], all), 0);
  const rise = (...names) => (last ? (sum(now, ...names) - sum(last, ...names)) / seconds : NaN);
  return {
    ...now,
    outstanding: sum(now, 'outstanding'),
    errors: sum(now, 'errors'),
    readsPerSecond: rise('reads'),
    writesPerSecond: rise('writes'),
    bytesPerSecond: rise('read_bytes', 'written_bytes'),
  };
}

/** Asks once, and shows the answer. */
async function refresh() {
  const now = await get('/v1/attachments');
  // Counters of a restarted process begin at 0.
  const last = before && before.uptime_ms < now.uptime_ms ? before : null;
  const known = new Map(last?.attachments.map((it) => [it.name, it]));
  const seconds = last ? (now.uptime_ms - last.uptime_ms) / 1000 : NaN;
  setText(find('target'), `Front ends · up ${duration(now.uptime_ms)}`);
  attachments.update(now.attachments.map((it) => rowOf(it, known.get(it.name), seconds)));
  before = now;
}

find('filter').addEventListener('input', (event) => attachments.setFilter(event.target.value));
session.start();

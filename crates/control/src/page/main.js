// The page: asks the API every 2 s, and shows the answers.

import * as actions from './actions.js';
import { get } from './api.js';
import { Chart, Sparkline } from './chart.js';
import { Model, bytes, duration, number, percent, rate, service, time } from './model.js';
import { Session } from './session.js';
import { Table, numbers, setText } from './table.js';

const find = (id) => document.getElementById(id);

/** Answers between two readings of the configuration, which changes rarely. */
const CONFIGURATION_EVERY = 5;
const EVENTS_SHOWN = 1_000;

let model = new Model();
let events = [];
let lastEvent = 0;
let knobs = { presets: [], knobs: [] };
let answers = 0;
let configuration = null;
let selected = null;

const session = new Session({
  begin: async () => {
    knobs = await get('/v1/switch/knobs');
  },
  refresh,
  forget: () => {
    model = new Model();
    events = [];
    lastEvent = 0;
    configuration = null;
  },
});

const dialog = new actions.Dialog(() => {
  configuration = null;
  return session.tick();
});

/** Opens a dialog that may first read from the API. */
const open = (action, ...args) => Promise.resolve(action(dialog, ...args)).catch((error) => session.fail(error));

const STATES = { met: '✓ met', missed: '▲ missed', 'over rate': '▲ over rate', waiting: '… waiting', active: 'active', idle: 'idle', 'no device': 'no model' };
const STYLES = { met: 'good', missed: 'bad', 'over rate': 'warn', waiting: 'warn' };
const RANKS = ['missed', 'over rate', 'waiting', 'met', 'active', 'idle', 'no device'];

const tenants = new Table(find('tenant-table'), {
  caption: 'Tenants',
  empty: 'There are no tenants on devices with a model.',
  key: ({ key }) => key,
  sortBy: 2,
  onSelect: (row) => select(row.key),
  columns: [
    { title: 'Tenant', value: ({ name }) => name },
    { title: 'SLO or weight', value: service, optional: 2 },
    { title: 'State', value: ({ state }) => RANKS.indexOf(state), show: (_, { state }) => STATES[state], style: ({ state }) => STYLES[state] },
    numbers('IOPS', 'iops'),
    numbers('Data', 'bytes', rate, 2),
    numbers('p50', 'p50', time, 1),
    numbers('p95', 'p95', time),
    numbers('p99', 'p99', time, 3),
    numbers('Tokens/s', 'spent', number, 1),
    numbers('Waiting', 'waiting', number, 1),
    numbers('Missed', 'missed', (value) => (Number.isFinite(value) ? `${value} s` : '–'), 3),
    { title: 'Device', value: ({ device }) => device || '–', optional: 1 },
  ],
});

const devices = new Table(find('device-table'), {
  caption: 'Devices',
  empty: 'There are no devices.',
  key: ({ name }) => name,
  columns: [
    { title: 'Device', value: ({ name }) => name },
    { title: 'Type', value: ({ type }) => type },
    { title: 'Size or path', value: ({ place }) => place, optional: 3 },
    { title: 'Namespaces', value: ({ namespaces }) => namespaces, isNumber: true, optional: 1 },
    numbers('Tokens/s', 'tokens', number, 2),
    numbers('Reserved', 'reserved', number, 1),
    numbers('Spent', 'spent', number, 3),
    { title: 'Change', buttons: [{ title: 'Remove…', label: ({ name }) => `Remove device ${name}`, run: ({ name }) => open(actions.removeDevice, name) }] },
  ],
});

const namespaces = new Table(find('namespace-table'), {
  caption: 'Namespaces',
  empty: 'There are no namespaces: share a device.',
  key: ({ key }) => key,
  columns: [
    { title: 'Subsystem', value: ({ nqn }) => nqn },
    { title: 'NSID', value: ({ nsid }) => nsid, isNumber: true },
    { title: 'Device', value: ({ device, readOnly }) => (readOnly ? `${device} (read-only)` : device), optional: 3 },
    numbers('Size', 'size', bytes),
    numbers('Reads/s', 'reads', number, 2),
    numbers('Writes/s', 'writes', number, 1),
    numbers('Read p99', 'readP99', time, 1),
    numbers('Write p99', 'writeP99', time, 1),
    numbers('Errors', 'errors', number, 1),
    {
      title: 'Change',
      buttons: [
        { title: 'Resize…', label: ({ nqn, nsid }) => `Resize namespace ${nsid} of ${nqn}`, run: (row) => open(actions.resize, row) },
        { title: 'Remove…', label: ({ nqn, nsid }) => `Remove namespace ${nsid} of ${nqn}`, run: (row) => open(actions.unshare, row) },
      ],
    },
  ],
});

const PROOFS = { claimed: 'none', tls: 'TLS', chap: 'DH-HMAC-CHAP', 'chap+tls': 'DH-HMAC-CHAP, TLS' };
const coresOf = ({ io_queues }) => [...new Set(io_queues.map(({ core }) => core))].sort((a, b) => a - b).join(', ');

const connections = new Table(find('connection-table'), {
  caption: 'Controllers of connected hosts',
  empty: 'No host is connected.',
  key: ({ cntlid }) => cntlid,
  columns: [
    { title: 'Host', value: ({ host_nqn }) => host_nqn },
    { title: 'Address', value: ({ peer }) => peer },
    { title: 'Subsystem', value: ({ nqn }) => nqn, optional: 1 },
    { title: 'Controller', value: ({ cntlid }) => cntlid, isNumber: true, optional: 2 },
    { title: 'I/O queues', value: ({ io_queues }) => io_queues.length, isNumber: true },
    { title: 'Cores', value: coresOf, optional: 1 },
    { title: 'Proof of name', value: ({ identity }) => PROOFS[identity] ?? identity, optional: 1 },
    numbers('Errors', 'errors', number, 3),
  ],
});

const eventTable = new Table(find('event-table'), {
  caption: 'Events, the last first',
  empty: 'No events.',
  key: (event) => event.number,
  isDescending: true,
  rowHeading: -1,
  columns: [
    { title: 'Time', value: ({ unix_ms }) => unix_ms, show: (ms) => new Date(ms).toLocaleString() },
    { title: 'Event', value: eventText, style: ({ kind }) => (kind === 'overrun_ended' ? 'wrap good' : 'wrap bad') },
  ],
});

const knobTable = new Table(find('knob-table'), {
  caption: 'Switch parameters',
  empty: 'Not read yet.',
  key: ({ key }) => key,
  columns: [
    { title: 'Parameter', value: ({ key }) => key },
    { title: 'Value', value: ({ value }) => value, style: ({ isDefault }) => (isDefault ? '' : 'warn') },
    { title: 'Default', value: (row) => row.default ?? '–', optional: 3 },
    { title: 'Meaning', value: ({ meaning }) => meaning, style: () => 'wrap', optional: 2 },
    { title: 'Change', buttons: [{ title: 'Change…', label: ({ key }) => `Change ${key}`, run: (row) => open(actions.setKnob, row, row.value) }] },
  ],
});

function eventText(event) {
  if (event.kind === 'authentication_refused') {
    return `Host ${event.host ?? '(unknown)'} at ${event.address} refused: ${event.reason}`;
  }
  const verb = event.kind === 'overrun_began' ? 'exceeds' : 'is within';
  return `Tenant ${event.tenant} ${verb} its SLO on ${event.device}: demands ${number(event.asked_tokens_per_second)} tokens/s of ${number(event.reserved_tokens_per_second)} reserved`;
}

const tiles = [
  ['IOPS', 'iops', number, 'latency'],
  ['Data', 'bytes', rate, 'latency'],
  ['Read latency p95', 'p95', time, 'latency'],
  ['Tenants that miss their SLO', 'missed', number, 'limit'],
  ['Cores busy', 'busy', percent, 'throughput'],
].map(([title, name, show, style]) => {
  const tile = document.createElement('div');
  tile.className = 'tile';
  const term = document.createElement('dt');
  term.textContent = title;
  const value = document.createElement('dd');
  const line = document.createElement('dd');
  tile.append(term, value, line);
  find('tiles').append(tile);
  return { name, show, value, line: new Sparkline(line, style) };
});

const charts = [
  [{ title: 'Read latency', format: time, isLog: true, series: [{ name: 'p50', style: 'third' }, { name: 'p95', style: 'latency' }, { name: 'p99', style: 'throughput' }, { name: 'SLO', style: 'limit', dashed: true }] },
    ({ history: { times, series }, slo }) => [series.p50, series.p95, series.p99, times.map(() => slo?.latency_ns ?? NaN)]],
  [{ title: 'IOPS', format: number, series: [{ name: 'served', style: 'latency' }, { name: 'late reads', style: 'limit' }] },
    ({ history: { series } }) => [series.iops, series.late]],
  [{ title: 'Tokens per second', format: number, series: [{ name: 'spent', style: 'latency' }, { name: 'reserved', style: 'limit', dashed: true }] },
    ({ history: { times, series }, reserved }) => [series.spent, times.map(() => reserved || NaN)]],
].map(([options, columns]) => {
  const figure = document.createElement('figure');
  find('tenant-charts').append(figure);
  return { chart: new Chart(figure, options), columns };
});

function select(key) {
  selected = key;
  tenants.select(key);
  showTenant();
}

function showTenant() {
  const row = model.tenants?.find(({ key }) => key === selected);
  find('tenant-charts').hidden = !row?.history;
  find('set-tenant').hidden = !row;
  find('remove-tenant').hidden = !row?.declared;
  setText(find('tenant-title'), row ? row.name : 'No tenant selected');
  if (!row) return;
  const hosts = row.declared?.hosts?.join(', ') || (row.declared ? 'every host' : 'hosts of no other tenant');
  const parts = [service(row), hosts];
  if (row.device) parts.push(`device ${row.device}`);
  if (row.slo && row.history) parts.push(`SLO met in ${row.met} s, missed in ${row.missed} s`);
  if (row.errors) parts.push(`${row.errors} errors`);
  setText(find('tenant-summary'), parts.join(' · '));
  if (row.history) for (const { chart, columns } of charts) chart.update(row.history.times, columns(row));
}

/** The cards of the cores, by number. */
const cards = new Map();

function card(core) {
  const element = document.createElement('article');
  element.className = 'card';
  const bar = document.createElement('div');
  bar.className = 'bar';
  const title = document.createElement('h3');
  title.textContent = `Core ${core}`;
  const busy = document.createElement('span');
  bar.append(title, busy);
  const meter = document.createElement('meter');
  meter.max = 1;
  meter.high = 0.9;
  meter.setAttribute('aria-label', `Core ${core} busy`);
  const table = document.createElement('table');
  const head = table.createTHead().insertRow();
  for (const text of ['Class', 'Queues', 'Answers/s', 'Data', 'In flight']) {
    const cell = document.createElement('th');
    cell.scope = 'col';
    cell.className = text === 'Class' ? '' : 'number';
    cell.textContent = text;
    head.append(cell);
  }
  const body = table.createTBody();
  const rows = [['latency', 'L'], ['throughput', 'T']].map(([name, letter]) => {
    const row = body.insertRow();
    const heading = document.createElement('th');
    heading.scope = 'row';
    heading.className = name;
    heading.textContent = letter;
    row.append(heading);
    const cells = ['queues', 'answers', 'bytes', 'outstanding'].map(() => {
      const cell = row.insertCell();
      cell.className = 'number';
      return cell;
    });
    return { name, cells };
  });
  const lines = document.createElement('div');
  element.append(bar, meter, table, lines);
  const note = document.createElement('p');
  note.className = 'muted';
  element.append(note);
  find('core-cards').append(element);
  const sparks = ['latency', 'throughput'].map((name) => ({ name, line: new Sparkline(lines, name) }));
  return { element, busy, meter, rows, note, sparks };
}

function showCores() {
  const { active, min, max, grown, shrunk } = model.stats.threads;
  setText(find('threads'), `Threads in use: ${active}, of ${min} to ${max}; added ${grown} times, removed ${shrunk} times`);
  for (const row of model.cores) {
    if (!cards.has(row.core)) cards.set(row.core, card(row.core));
    const { element, busy, meter, rows, note, sparks } = cards.get(row.core);
    element.classList.toggle('asleep', !row.inUse);
    setText(busy, row.inUse ? `${percent(row.busy)} busy` : 'sleeps');
    meter.value = row.inUse && Number.isFinite(row.busy) ? Math.min(row.busy, 1) : 0;
    for (const { name, cells } of rows) {
      const side = row[name];
      [number(side.queues), number(side.answers), rate(side.bytes), bytes(side.outstanding)].forEach((text, i) => setText(cells[i], text));
    }
    const moved = row.latency.moved + row.throughput.moved;
    setText(note, `${moved} queues steered here, ${row.steering} steps${row.refused ? `; ${row.refused}` : ''}`);
    for (const { name, line } of sparks) line.update(row.history.series[name]);
  }
}

function deviceRows() {
  const shared = new Map(model.devices.map((device) => [device.device, device]));
  const count = (name) => model.namespaces.filter(({ device }) => device === name).length;
  return Object.entries(configuration.devices).map(([name, device]) => {
    const { tokens = NaN, reserved = NaN, spent = NaN } = shared.get(name) ?? {};
    return { name, type: device.type, place: String(device.path ?? device.size ?? ''), namespaces: count(name), tokens, reserved, spent };
  });
}

function knobRows({ knobs: values }) {
  const text = (value) => (typeof value === 'boolean' ? ['off', 'on'][Number(value)] : String(value));
  return knobs.knobs.filter(({ key }) => key in values).map((knob) => {
    const value = text(values[knob.key]);
    return { ...knob, value, isDefault: value === knob.default };
  });
}

function presetText({ setting: { baseline, ...rest } }) {
  const count = Object.keys(rest).length;
  return count ? `preset ${baseline}, ${count} changed` : `preset ${baseline}`;
}

function show(turned) {
  const { stats, now } = model;
  for (const { name, show: format, value, line } of tiles) {
    setText(value, format(now[name]));
    line.update(model.total.series[name]);
  }
  setText(find('target'), `${stats.listen.join(', ')} · up ${duration(stats.uptime_ms)}`);
  tenants.update(model.tenants);
  if (!model.tenants.some(({ key }) => key === selected)) select((tenants.shown.find(({ slo }) => slo) ?? tenants.shown[0])?.key);
  showTenant();
  showCores();
  devices.update(deviceRows());
  namespaces.update(model.namespaces);
  const { open: count, accepted, refused } = stats.connections;
  setText(find('connection-counts'), `${count} open, ${accepted} accepted, ${refused} refused`);
  connections.update(model.controllers);
  eventTable.update(events);
  if (turned) {
    knobTable.update(knobRows(turned));
    setText(find('preset'), presetText(turned));
    find('set-preset').onclick = () => open(actions.setPreset, knobs.presets, turned.setting.baseline);
  }
}

/** Asks once, and shows the answers. */
async function refresh() {
  const isFull = configuration === null || answers % CONFIGURATION_EVERY === 0;
  const [stats, news, full, turned] = await Promise.all([
    get('/v1/stats'),
    get(`/v1/events?after=${lastEvent}`),
    isFull ? get('/v1/config') : configuration,
    isFull ? get('/v1/switch') : null,
  ]);
  configuration = full;
  answers += 1;
  // A restarted target numbers its events from 1 again.
  const isRestarted = stats.uptime_ms < model.stats?.uptime_ms;
  events = isRestarted ? [] : events.concat(news.events).slice(-EVENTS_SHOWN);
  lastEvent = isRestarted ? 0 : news.last;
  model.take(stats, full);
  show(turned);
}

find('tenant-filter').addEventListener('input', (event) => tenants.setFilter(event.target.value));
find('add-tenant').addEventListener('click', () => open(actions.addTenant));
find('set-tenant').addEventListener('click', () => open(actions.setTenant, nameOfSelected()));
find('remove-tenant').addEventListener('click', () => open(actions.removeTenant, nameOfSelected()));
find('add-device').addEventListener('click', () => open(actions.addDevice));
find('share').addEventListener('click', () => open(actions.share));

function nameOfSelected() {
  return model.tenants.find(({ key }) => key === selected).name;
}

session.start();

// Changes: a dialog with fields, the command that does the same, and the request.

import { get, request } from './api.js';

const find = (id) => document.getElementById(id);

/** Returns a word as a POSIX shell reads it. */
const quoted = (word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);

export const command = (...words) => ['switchyard', ...words].map((word) => quoted(String(word))).join(' ');

const list = (text) => text.split(/[\s,]+/).filter(Boolean);
export const path = (...parts) => `/v1/${parts.map(encodeURIComponent).join('/')}`;
const numeric = (text) => (/^\d+$/.test(text) ? Number(text) : text);

/** The dialog for one change at a time. */
export class Dialog {
  constructor(onDone) {
    this.element = find('dialog');
    this.onDone = onDone;
    find('cancel').addEventListener('click', () => this.element.close());
    find('copy').addEventListener('click', () => this.copy());
    find('dialog-form').addEventListener('submit', (event) => {
      event.preventDefault();
      this.submit();
    });
    find('dialog-fields').addEventListener('input', () => this.show());
  }

  /**
   * `fields`: [{ name, label, hint, value, options, type, isWhole, isShown(values) }]; `command(values)`
   * and `run(values)` receive the values of the fields that are shown.
   */
  open({ title, text = '', fields = [], submit, isDanger = false, command: words, run }) {
    this.action = { fields, words, run };
    find('dialog-title').textContent = title;
    find('dialog-text').textContent = text;
    find('dialog-error').textContent = '';
    find('submit').textContent = submit;
    find('submit').classList.toggle('danger', isDanger);
    find('copy').textContent = 'Copy';
    this.inputs = new Map();
    find('dialog-fields').replaceChildren(...fields.map((field) => this.field(field)));
    this.show();
    this.element.showModal();
  }

  field({ name, label, hint, value = '', options, type = 'text', isWhole }) {
    const box = document.createElement('div');
    box.className = isWhole ? 'field whole' : 'field';
    const caption = document.createElement('label');
    caption.htmlFor = `field-${name}`;
    caption.textContent = label;
    const input = document.createElement(options ? 'select' : 'input');
    input.id = `field-${name}`;
    if (options) {
      for (const option of options) input.add(new Option(option, option));
    } else {
      input.type = type;
      input.autocomplete = 'off';
      input.spellcheck = false;
    }
    input.value = options ? value || options[0] : value;
    box.append(caption, input);
    if (hint) {
      const explanation = document.createElement('span');
      explanation.id = `hint-${name}`;
      explanation.className = 'hint';
      explanation.textContent = hint;
      input.setAttribute('aria-describedby', explanation.id);
      box.append(explanation);
    }
    this.inputs.set(name, { box, input });
    return box;
  }

  values() {
    return Object.fromEntries([...this.inputs].map(([name, { input }]) => [name, input.value.trim()]));
  }

  show() {
    const values = this.values();
    for (const { name, isShown } of this.action.fields) {
      this.inputs.get(name).box.hidden = isShown ? !isShown(values) : false;
    }
    find('command').textContent = this.action.words(values);
  }

  async copy() {
    try {
      await navigator.clipboard.writeText(find('command').textContent);
      find('copy').textContent = 'Copied';
    } catch {
      getSelection().selectAllChildren(find('command'));
    }
  }

  async submit() {
    find('submit').disabled = true;
    find('dialog-error').textContent = '';
    try {
      await this.action.run(this.values());
      this.element.close();
      await this.onDone();
    } catch (error) {
      find('dialog-error').textContent = error.message;
    } finally {
      find('submit').disabled = false;
    }
  }
}

const BEST_EFFORT = 'best-effort';
const CRITICAL = 'latency-critical';

function tenantFields(tenant) {
  const slo = tenant.latency_critical;
  const isCritical = ({ service }) => service === CRITICAL;
  return [
    { name: 'hosts', label: 'Host NQNs', hint: 'separated by blanks; empty: every host', value: (tenant.hosts ?? []).join(' '), isWhole: true },
    { name: 'service', label: 'Service', options: [BEST_EFFORT, CRITICAL], value: slo ? CRITICAL : BEST_EFFORT },
    { name: 'weight', label: 'Weight in the spare capacity', type: 'number', value: tenant.best_effort?.weight ?? 100, isShown: (values) => !isCritical(values) },
    { name: 'latency_us', label: 'SLO: read latency in µs', type: 'number', value: slo?.latency_us ?? 500, isShown: isCritical },
    { name: 'percentile', label: 'SLO: percentile', options: ['p50', 'p95', 'p99', 'p99.9'], value: slo?.percentile ?? 'p95', isShown: isCritical },
    { name: 'iops', label: 'SLO: requests per second', type: 'number', value: slo?.iops ?? 10000, isShown: isCritical },
    { name: 'read_percent', label: 'SLO: reads in percent', type: 'number', value: slo?.read_percent ?? 100, isShown: isCritical },
    { name: 'request_size', label: 'SLO: request size', value: slo?.request_size ?? '4K', isShown: isCritical },
  ];
}

/** Returns the tenant with the values of the fields; the rest of it stays. */
function tenantOf(before, values) {
  const tenant = { ...before, hosts: list(values.hosts) };
  if (!tenant.hosts.length) delete tenant.hosts;
  delete tenant.latency_critical;
  delete tenant.best_effort;
  if (values.service === CRITICAL) {
    const { percentile, request_size } = values;
    tenant.latency_critical = { percentile, request_size, latency_us: numeric(values.latency_us), iops: numeric(values.iops), read_percent: numeric(values.read_percent) };
  } else {
    tenant.best_effort = { weight: numeric(values.weight) };
  }
  return tenant;
}

function tenantWords(verb, name, before, values) {
  const hosts = list(values.hosts);
  const words = ['tenant', verb, name, ...hosts.flatMap((host) => ['--host', host])];
  if (!hosts.length && before.hosts?.length) words.push('--any', 'host');
  if (values.service === CRITICAL) {
    words.push('--iops', values.iops, '--latency-us', values.latency_us, '--percentile', values.percentile);
    words.push('--read-percent', values.read_percent, '--request-size', values.request_size);
  } else {
    if (before.latency_critical) words.push('--no-slo');
    words.push('--weight', values.weight);
  }
  return command(...words);
}

export function addTenant(dialog) {
  const name = { name: 'name', label: 'Name', hint: 'letters, digits, - _ and .', isWhole: true };
  dialog.open({
    title: 'Add tenant',
    text: 'A tenant is a group of hosts with an SLO, or with a weight in the spare capacity.',
    fields: [name, ...tenantFields({})],
    submit: 'Add tenant',
    command: (values) => tenantWords('add', values.name, {}, values),
    run: (values) => request('POST', '/v1/tenants', tenantOf({ name: values.name }, values)),
  });
}

export async function setTenant(dialog, name) {
  const { body, etag } = await request('GET', path('tenants', name));
  dialog.open({
    title: `Change tenant ${name}`,
    fields: tenantFields(body.tenant),
    submit: 'Change tenant',
    command: (values) => tenantWords('set', name, body.tenant, values),
    run: (values) => request('PUT', path('tenants', name), tenantOf(body.tenant, values), etag),
  });
}

export function removeTenant(dialog, name) {
  dialog.open({
    title: `Remove tenant ${name}`,
    text: 'Its hosts belong to the default tenant then, or are refused if there is none.',
    submit: 'Remove tenant',
    isDanger: true,
    command: () => command('tenant', 'remove', name),
    run: () => request('DELETE', path('tenants', name)),
  });
}

export function setKnob(dialog, knob, value) {
  dialog.open({
    title: `Change ${knob.key}`,
    text: knob.meaning,
    fields: [{ name: 'value', label: 'Value', hint: knob.range, value, isWhole: true }],
    submit: 'Change parameter',
    command: (values) => command('switch', 'set', `${knob.key}=${values.value}`),
    run: (values) => request('PATCH', '/v1/switch', { [knob.key]: plain(values.value) }),
  });
}

/** Returns the value of a knob as JSON has it. */
function plain(text) {
  if (text === 'on' || text === 'true') return true;
  if (text === 'off' || text === 'false') return false;
  return numeric(text);
}

export function setPreset(dialog, presets, now) {
  dialog.open({
    title: 'Apply preset',
    text: 'A preset sets all parameters. “switchyard” has all mechanisms; the others emulate other stacks.',
    fields: [{ name: 'preset', label: 'Preset', options: presets, value: now, isWhole: true }],
    submit: 'Apply preset',
    command: ({ preset }) => command('switch', 'preset', preset),
    run: ({ preset }) => request('PATCH', '/v1/switch', { baseline: preset }),
  });
}

export function addDevice(dialog) {
  const isFile = ({ type }) => type === 'file';
  const body = ({ name, type, size, place }) => ({ name, device: type === 'file' ? { type, path: place } : { type, size } });
  dialog.open({
    title: 'Add device',
    fields: [
      { name: 'name', label: 'Name', hint: 'letters, digits, - _ and .' },
      { name: 'type', label: 'Type', options: ['ram', 'file', 'null'] },
      { name: 'size', label: 'Size', hint: 'such as 64M or 10G', value: '64M', isShown: (values) => !isFile(values) },
      { name: 'place', label: 'Path', hint: 'a file or block device in one of device_folders', isWhole: true, isShown: isFile },
    ],
    submit: 'Add device',
    command: ({ name, type, size, place }) => command('device', 'add', name, `--${type}`, type === 'file' ? place : size),
    run: (values) => request('POST', '/v1/devices', body(values)),
  });
}

export function removeDevice(dialog, name) {
  dialog.open({
    title: `Remove device ${name}`,
    text: 'The content of a RAM device is lost. A device that a namespace shares is not removed.',
    submit: 'Remove device',
    isDanger: true,
    command: () => command('device', 'remove', name),
    run: () => request('DELETE', path('devices', name)),
  });
}

export async function share(dialog) {
  const { devices, subsystems } = await get('/v1/config');
  const used = (nqn) => subsystems.find((it) => it.nqn === nqn)?.namespaces.map(({ nsid }) => nsid) ?? [];
  const free = (nqn) => Array.from({ length: 1024 }, (_, i) => i + 1).find((nsid) => !used(nqn).includes(nsid));
  const nqn = subsystems[0]?.nqn ?? '';
  const body = ({ nsid, device, size }) => ({ nsid: numeric(nsid), device, ...(size && { size }) });
  dialog.open({
    title: 'Share device',
    text: 'Adds a namespace to a subsystem. Connected hosts are notified.',
    fields: [
      { name: 'device', label: 'Device', options: Object.keys(devices) },
      { name: 'nqn', label: 'Subsystem', options: subsystems.map((it) => it.nqn), isWhole: true },
      { name: 'nsid', label: 'Namespace identifier (NSID)', type: 'number', value: free(nqn) },
      { name: 'size', label: 'Size', hint: 'such as 64M; empty: the whole device' },
    ],
    submit: 'Share device',
    command: ({ nqn, device, nsid, size }) =>
      command('namespace', 'add', nqn, device, '--nsid', nsid, ...(size ? ['--size', size] : [])),
    run: (values) => request('POST', path('subsystems', values.nqn, 'namespaces'), body(values)),
  });
}

export function resize(dialog, { nqn, nsid }) {
  const place = path('subsystems', nqn, 'namespaces', nsid);
  const body = ({ size }) => ({ size: size || null });
  dialog.open({
    title: `Resize namespace ${nsid}`,
    text: `Of subsystem ${nqn}. A smaller size hides the blocks beyond the new end from hosts.`,
    fields: [{ name: 'size', label: 'Size', hint: 'such as 64M; empty: the whole device', isWhole: true }],
    submit: 'Resize namespace',
    command: ({ size }) => command('namespace', 'set', nqn, nsid, '--size', size || 'all'),
    run: (values) => request('PATCH', place, body(values)),
  });
}

export function unshare(dialog, { nqn, nsid, device }) {
  const place = path('subsystems', nqn, 'namespaces', nsid);
  dialog.open({
    title: `Remove namespace ${nsid}`,
    text: `Of subsystem ${nqn}. Hosts lose access; device ${device} keeps its data.`,
    submit: 'Remove namespace',
    isDanger: true,
    command: () => command('namespace', 'remove', nqn, nsid),
    run: () => request('DELETE', place),
  });
}

// Rates and percentiles from two samples of /v1/stats, their history, and texts of values.

export const PERIOD_MS = 2_000;
const HISTORY = 300;

const SERIES = ['p50', 'p95', 'p99', 'iops', 'spent', 'late'];

/** The last values of several series, at common times. */
export class History {
  constructor(names) {
    this.times = [];
    this.series = Object.fromEntries(names.map((name) => [name, []]));
  }

  push(time, values) {
    this.times.push(time);
    const isFull = this.times.length > HISTORY;
    if (isFull) this.times.shift();
    for (const [name, list] of Object.entries(this.series)) {
      list.push(values[name] ?? NaN);
      if (isFull) list.shift();
    }
  }
}

/** Returns the commands of a histogram that were counted after `before`, per bucket. */
function since(now, before) {
  const counts = now.buckets.map(({ count }, i) => count - (before?.buckets[i].count ?? 0));
  counts.push(now.above - (before?.above ?? 0));
  return counts;
}

/** Returns the upper bound in ns of the bucket with this share of the commands; NaN without commands. */
function quantile(counts, buckets, share) {
  const total = counts.reduce((sum, count) => sum + count, 0);
  if (total <= 0) return NaN;
  const wanted = Math.ceil(total * share);
  let sum = 0;
  for (let i = 0; i < counts.length; i += 1) {
    sum += counts[i];
    if (sum >= wanted) return buckets[i]?.up_to_ns ?? Infinity;
  }
  return Infinity;
}

const NONE = { p50: NaN, p95: NaN, p99: NaN };

function percentiles(now, before) {
  const counts = since(now, before);
  const at = (share) => quantile(counts, now.buckets, share);
  return { p50: at(0.5), p95: at(0.95), p99: at(0.99) };
}

/** The target's state: a sample, the rates since the one before, and the history. */
export class Model {
  constructor() {
    this.tenantHistory = new Map();
    this.total = new History(['iops', 'bytes', 'p95', 'busy', 'missed']);
    this.coreHistory = new Map();
  }

  /** Takes a sample. */
  take(stats, configuration) {
    const before = this.stats && this.stats.uptime_ms < stats.uptime_ms ? this.stats : null;
    if (this.stats && !before && this.stats.uptime_ms !== stats.uptime_ms) Object.assign(this, new Model());
    this.stats = stats;
    this.configuration = configuration;
    this.seconds = before ? (stats.uptime_ms - before.uptime_ms) / 1000 : NaN;
    this.tenants = this.tenantRows(before);
    this.cores = this.coreRows(before);
    this.devices = this.deviceRows();
    this.namespaces = this.namespaceRows(before);
    this.controllers = stats.controllers;
    this.totals(before);
  }

  rate(now, before) {
    return (now - (before ?? 0)) / this.seconds;
  }

  tenantRows(before) {
    const known = new Map();
    for (const device of before?.devices ?? []) {
      for (const tenant of device.tenants) known.set(`${tenant.name} ${device.device}`, tenant);
    }
    const declared = new Map(this.configuration.tenants.map((tenant) => [tenant.name, tenant]));
    const served = new Set();
    const history = new Map();
    const rows = this.stats.devices.flatMap((device) =>
      device.tenants.map((tenant) => {
        served.add(tenant.name);
        const key = `${tenant.name} ${device.device}`;
        const row = this.tenantRow(key, device.device, tenant, known.get(key), declared.get(tenant.name));
        row.history = this.tenantHistory.get(key) ?? new History(SERIES);
        row.history.push(this.stats.uptime_ms, row);
        history.set(key, row.history);
        return row;
      }));
    this.tenantHistory = history;
    const others = this.configuration.tenants.filter(({ name }) => !served.has(name));
    return rows.concat(others.map((tenant) => this.unserved(tenant)));
  }

  tenantRow(key, device, now, before, declared) {
    const rate = (name) => this.rate(now[name], before?.[name]);
    const rise = (name) => (this.seconds ? now[name] - (before?.[name] ?? now[name]) : 0);
    const iops = rate('reads') + rate('writes') + rate('others');
    const row = {
      key,
      name: now.name,
      device,
      declared,
      slo: now.class.latency_critical,
      weight: now.class.best_effort?.weight,
      iops,
      bytes: rate('read_bytes') + rate('written_bytes'),
      ...(now.reads === before?.reads ? NONE : percentiles(now.latency.reads, before?.latency.reads)),
      spent: rate('spent_milli') / 1000,
      reserved: now.reserved_tokens_per_second,
      waiting: now.waiting,
      late: rate('late_reads'),
      missed: now.windows_missed,
      met: now.windows_met,
      errors: now.errors,
    };
    row.state = state(row, rise('windows_missed'), rise('windows_met'), now.overruns);
    return row;
  }

  /** A tenant on no device with a model: its requests take no tokens. */
  unserved(tenant) {
    const slo = tenant.latency_critical;
    return {
      key: tenant.name,
      name: tenant.name,
      device: '',
      declared: tenant,
      slo: slo && { percentile: slo.percentile, latency_ns: slo.latency_us * 1000 },
      weight: tenant.best_effort?.weight ?? 100,
      iops: NaN,
      bytes: NaN,
      p50: NaN,
      p95: NaN,
      p99: NaN,
      waiting: NaN,
      missed: NaN,
      state: 'no device',
    };
  }

  coreRows(before) {
    const cores = new Map((before?.cores ?? []).map((core) => [core.core, core]));
    const switches = new Map((before?.switch ?? []).map((core) => [core.core, core]));
    const busy = new Map(this.stats.cores.map((core) => [core.core, this.rate(core.busy_ns, cores.get(core.core)?.busy_ns) / 1e9]));
    const history = new Map();
    const rows = this.stats.switch.map((now) => {
      const was = switches.get(now.core);
      const sides = Object.fromEntries(['latency', 'throughput'].map((name) => [name, this.classOf(now.classes[name], was?.classes[name])]));
      const row = {
        core: now.core,
        inUse: now.in_use,
        privilege: now.privilege,
        refused: now.privilege_refused,
        busy: busy.get(now.core),
        steering: now.steering_steps,
        ...sides,
      };
      row.history = this.coreHistory.get(now.core) ?? new History(['latency', 'throughput']);
      row.history.push(this.stats.uptime_ms, { latency: row.latency.bytes, throughput: row.throughput.bytes });
      history.set(now.core, row.history);
      return row;
    });
    this.coreHistory = history;
    return rows;
  }

  classOf(now, before) {
    return {
      queues: now.queues,
      answers: this.rate(now.caravans.requests, before?.caravans.requests),
      bytes: this.rate(now.caravans.bytes + now.receive.bytes, before && before.caravans.bytes + before.receive.bytes),
      outstanding: now.outstanding_bytes,
      load: now.load_bytes,
      moved: now.moved_in,
    };
  }

  deviceRows() {
    return this.stats.devices.map((device) => ({
      device: device.device,
      tokens: device.tokens_per_second,
      reserved: device.reserved_tokens_per_second,
      spent: this.tenants.filter((row) => row.device === device.device).reduce((sum, row) => sum + row.spent, 0),
    }));
  }

  namespaceRows(before) {
    const known = new Map((before?.namespaces ?? []).map((it) => [`${it.nsid} ${it.nqn}`, it]));
    return this.stats.namespaces.map((now) => {
      const key = `${now.nsid} ${now.nqn}`;
      const was = known.get(key);
      const sum = (of, name) => (of ? of.reads[name] + of.writes[name] + of.flushes[name] + of.others[name] : 0);
      return {
        key,
        nqn: now.nqn,
        nsid: now.nsid,
        device: now.device,
        size: now.size_bytes,
        blockSize: now.block_bytes,
        readOnly: now.read_only,
        reads: this.rate(now.reads.completed, was?.reads.completed),
        writes: this.rate(now.writes.completed, was?.writes.completed),
        completed: this.rate(sum(now, 'completed'), sum(was, 'completed')),
        bytes: this.rate(sum(now, 'bytes'), sum(was, 'bytes')),
        readP99: percentiles(now.reads.latency, was?.reads.latency).p99,
        writeP99: percentiles(now.writes.latency, was?.writes.latency).p99,
        errors: sum(now, 'errors'),
        latency: now.reads.latency,
        latencyBefore: was?.reads.latency,
      };
    });
  }

  totals() {
    const sum = (rows, name) => rows.reduce((total, row) => total + row[name], 0);
    const reads = this.namespaces[0] && this.namespaces.reduce((counts, row) => {
      const rise = since(row.latency, row.latencyBefore ?? row.latency);
      return counts.map((count, i) => count + rise[i]);
    }, new Array(this.namespaces[0].latency.buckets.length + 1).fill(0));
    this.now = {
      iops: sum(this.namespaces, 'completed'),
      bytes: sum(this.namespaces, 'bytes'),
      p95: reads ? quantile(reads, this.namespaces[0].latency.buckets, 0.95) : NaN,
      busy: sum(this.cores.filter(({ inUse }) => inUse), 'busy') / Math.max(this.cores.filter(({ inUse }) => inUse).length, 1),
      missed: this.tenants.filter(({ state: it }) => it === 'missed').length,
    };
    this.total.push(this.stats.uptime_ms, this.now);
  }
}

/** Returns the state of a tenant since the sample before. */
function state(row, missed, met, overruns) {
  if (row.slo) {
    if (overruns) return 'over rate';
    if (missed > 0) return 'missed';
    return met > 0 ? 'met' : 'idle';
  }
  if (row.waiting > 0) return 'waiting';
  return row.iops > 0 ? 'active' : 'idle';
}

const PREFIXES = [[1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e3, 'k']];
const BINARY = [[2 ** 50, 'PiB'], [2 ** 40, 'TiB'], [2 ** 30, 'GiB'], [2 ** 20, 'MiB'], [2 ** 10, 'KiB']];

const digits = (value) => (value >= 100 || Number.isInteger(value) ? Math.round(value).toString() : value.toPrecision(3).replace(/\.?0+$/, ''));

/** 1234567 as "1.23 M". */
export function number(value) {
  if (!Number.isFinite(value)) return '–';
  const [factor, prefix] = PREFIXES.find(([least]) => value >= least * 0.9995) ?? [1, ''];
  return prefix ? `${digits(value / factor)} ${prefix}` : digits(value < 0.05 ? 0 : value);
}

/** Bytes as "64 MiB". */
export function bytes(value) {
  if (!Number.isFinite(value)) return '–';
  const [factor, unit] = BINARY.find(([least]) => value >= least) ?? [1, 'B'];
  return `${digits(value / factor)} ${unit}`;
}

/** Bytes per second as "1.2 GB/s". */
export const rate = (value) => (Number.isFinite(value) ? `${number(value)}${value >= 999.5 ? '' : ' '}B/s` : '–');

/** Nanoseconds as "500 µs". */
export function time(ns) {
  if (Number.isNaN(ns)) return '–';
  if (ns === Infinity) return '> 30 s';
  if (ns >= 1e9) return `${digits(ns / 1e9)} s`;
  return ns >= 1e6 ? `${digits(ns / 1e6)} ms` : `${digits(ns / 1e3)} µs`;
}

export const percent = (share) => (Number.isFinite(share) ? `${Math.round(share * 100)} %` : '–');

/** Milliseconds as "3 d 04:05:06". */
export function duration(ms) {
  const seconds = Math.floor(ms / 1000);
  const two = (value) => String(value).padStart(2, '0');
  const days = Math.floor(seconds / 86_400);
  const clock = `${two(Math.floor(seconds / 3600) % 24)}:${two(Math.floor(seconds / 60) % 60)}:${two(seconds % 60)}`;
  return days ? `${days} d ${clock}` : clock;
}

/** The SLO or the weight of a tenant. */
export function service(row) {
  if (!row.slo) return `weight ${row.weight}`;
  const iops = row.declared?.latency_critical?.iops;
  return `${row.slo.percentile} ≤ ${time(row.slo.latency_ns)}${iops ? ` at ${number(iops)} IOPS` : ''}`;
}

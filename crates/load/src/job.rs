//! Work of one thread of the load: an app, laid out over a device.

use super::app::{Access, App, AppError};
use super::arrivals::Schedule;
use super::content::Content;
use super::limits;
use base::Nanos;
use block::{Capabilities, Geometry};
use std::ops::Range;

/// One thread's work. A *unit* is a request's size, and unit `n` lies `n` sizes into the device.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) access: Access,
    pub(super) read_percent: u8,
    pub(super) depth: u32,
    /// Data requests before a commit; see [`App::journal`].
    pub(super) journal: Option<u32>,
    pub(super) unit_bytes: u32,
    pub(super) unit_blocks: u32,
    /// Range of units that requests use.
    pub(super) span: Range<u64>,
    /// First unit of a sequential thread.
    pub(super) first: u64,
    pub(super) schedule: Option<Schedule>,
    pub(super) warmup: Nanos,
    pub(super) measured: Nanos,
    /// Content of blocks if the run verifies; the span then belongs to this thread alone.
    pub(super) content: Option<Content>,
    /// Range of units that are written once before the start.
    pub(super) prefill: Range<u64>,
    pub(super) seed: u64,
    /// The thread may poll before an intended start.
    pub(super) punctual: bool,
    /// Requests before the start, one or more per connection, to check that each works.
    pub(super) tries: u64,
}

/// Settings of all threads of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Common {
    pub(super) threads: u32,
    pub(super) warmup: Nanos,
    pub(super) measured: Nanos,
    pub(super) seed: u64,
    /// Number that distinguishes this run's content from other runs', if it verifies.
    pub(super) nonce: Option<u64>,
    pub(super) prefill: bool,
    pub(super) punctual: bool,
    pub(super) hosts: u32,
}

/// Lays the threads of `app` out over a device; `before` threads of other apps precede them.
pub(super) fn plan(
    app: &App,
    geometry: Geometry,
    capabilities: Capabilities,
    before: u32,
    common: &Common,
) -> Result<Vec<Job>, AppError> {
    let units = check(app, geometry, capabilities, common)?;
    (0..app.count)
        .map(|thread| {
            let share = part(units, before + thread, common.threads);
            let content = common
                .nonce
                .map(|nonce| Content::new(common.seed, nonce, geometry.block_bytes));
            let span = if content.is_some() {
                let blocks = part(geometry.blocks, before + thread, common.threads);
                bounded(app, within(blocks, app.block_bytes / geometry.block_bytes))?
            } else {
                0..units
            };
            let first = match content {
                Some(_) => span.start,
                None => part(units, thread, app.count).start,
            };
            Ok(Job {
                access: app.access,
                read_percent: app.read_percent,
                depth: app.depth,
                journal: app.journal,
                unit_bytes: app.block_bytes,
                unit_blocks: app.block_bytes / geometry.block_bytes,
                prefill: match (common.prefill, &content) {
                    (false, _) => 0..0,
                    (true, Some(_)) => span.clone(),
                    (true, None) => share,
                },
                span,
                first,
                schedule: app.rate.map(|rate| Schedule {
                    rate,
                    threads: app.count,
                    thread,
                    pace: app.pace,
                }),
                warmup: common.warmup,
                measured: common.measured,
                content,
                seed: common.seed.wrapping_add(u64::from(before + thread) << 32),
                punctual: common.punctual,
                tries: if common.hosts > 1 {
                    u64::from(common.hosts) * u64::from(app.queues)
                } else {
                    1
                },
            })
        })
        .collect()
}

/// Checks the app against the device. Returns the number of units of the device.
fn check(
    app: &App,
    geometry: Geometry,
    capabilities: Capabilities,
    common: &Common,
) -> Result<u64, AppError> {
    let bytes = app.block_bytes;
    let wrong = |remedy: String| Err(AppError::key(&app.name, format!("bs={bytes}"), remedy));
    if !bytes.is_multiple_of(geometry.block_bytes) {
        return wrong(format!(
            "use a multiple of the device's block size of {} bytes",
            geometry.block_bytes
        ));
    }
    if bytes > capabilities.max_transfer_bytes {
        return wrong(format!(
            "the device supports at most {} bytes per request",
            capabilities.max_transfer_bytes
        ));
    }
    let units = geometry.bytes() / u64::from(bytes);
    if units == 0 {
        return wrong(format!("the device has only {} bytes", geometry.bytes()));
    }
    if capabilities.read_only && (app.read_percent < 100 || common.prefill) {
        let remedy = "the device is read-only; use rw=read or rw=randread, and omit --prefill";
        return Err(AppError::key(&app.name, "rw", remedy));
    }
    Ok(units)
}

/// Part `index` of `count` equal parts of `units`.
fn part(units: u64, index: u32, count: u32) -> Range<u64> {
    let at = |index: u32| {
        let unit = u128::from(units) * u128::from(index) / u128::from(count);
        u64::try_from(unit).expect("a part lies within the whole")
    };
    at(index)..at(index + 1)
}

/// Range of units of `unit_blocks` blocks that lie wholly within a range of blocks, so that apps
/// with other sizes do not overlap it.
fn within(blocks: Range<u64>, unit_blocks: u32) -> Range<u64> {
    let unit = u64::from(unit_blocks);
    let end = blocks.end / unit;
    blocks.start.div_ceil(unit).min(end)..end
}

/// Part of a thread's share whose content the thread can remember. It needs more units than
/// requests in flight, because no two requests may overlap.
fn bounded(app: &App, share: Range<u64>) -> Result<Range<u64>, AppError> {
    let least = 2 * u64::from(app.depth);
    if share.end - share.start < least {
        let remedy = format!(
            "--verify needs space for {least} requests per thread; use a larger device, fewer \
             threads, or a smaller depth"
        );
        return Err(AppError::key(
            &app.name,
            format!("depth={}", app.depth),
            remedy,
        ));
    }
    Ok(share.start..share.end.min(share.start + limits::VERIFY_UNITS_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device() -> (Geometry, Capabilities) {
        let geometry = Geometry {
            block_bytes: 4096,
            blocks: 1000,
        };
        let capabilities = Capabilities {
            volatile_cache: false,
            read_only: false,
            thin: false,
            max_transfer_bytes: 65_536,
            preferred_bytes: 0,
            extents_max: 0,
        };
        (geometry, capabilities)
    }

    fn common(threads: u32, nonce: Option<u64>) -> Common {
        Common {
            threads,
            warmup: Nanos::ZERO,
            measured: Nanos::ZERO,
            seed: 1,
            nonce,
            prefill: true,
            punctual: true,
            hosts: 1,
        }
    }

    #[test]
    fn threads_start_apart_and_prefill_the_whole_device_between_them() {
        let (geometry, capabilities) = device();
        let app: App = "a:rw=read,bs=8k,count=3".parse().unwrap();
        let jobs = plan(&app, geometry, capabilities, 1, &common(4, None)).unwrap();
        let firsts: Vec<_> = jobs.iter().map(|job| job.first).collect();
        assert_eq!(firsts, [0, 166, 333]);
        assert!(jobs.iter().all(|job| job.span == (0..500)));
        let prefills: Vec<_> = jobs.iter().map(|job| job.prefill.clone()).collect();
        assert_eq!(prefills, [125..250, 250..375, 375..500]);
    }

    #[test]
    fn verifying_threads_share_no_unit() {
        let (geometry, capabilities) = device();
        let app: App = "a:rw=randrw,count=4,depth=8".parse().unwrap();
        let jobs = plan(&app, geometry, capabilities, 0, &common(4, Some(1))).unwrap();
        for pair in jobs.windows(2) {
            assert_eq!(pair[0].span.end, pair[1].span.start);
        }
        let app: App = "a:rw=randrw,depth=501".parse().unwrap();
        let error = plan(&app, geometry, capabilities, 0, &common(1, Some(1))).unwrap_err();
        assert!(error.to_string().contains("depth=501"), "{error}");
    }

    #[test]
    fn verifying_threads_of_different_sizes_share_no_block() {
        let (geometry, capabilities) = device();
        let common = common(3, Some(1));
        let small: App = "a:rw=randrw,count=2".parse().unwrap();
        let large: App = "b:rw=randrw,bs=64k".parse().unwrap();
        let small = plan(&small, geometry, capabilities, 0, &common).unwrap();
        let large = plan(&large, geometry, capabilities, 2, &common).unwrap();
        assert_eq!(small[1].span.end, 666);
        assert_eq!(large[0].span, 42..62, "block 672 on");
    }

    #[test]
    fn what_the_device_cannot_do_is_named() {
        let (geometry, capabilities) = device();
        let error = |text: &str, capabilities| {
            let app: App = text.parse().unwrap();
            plan(&app, geometry, capabilities, 0, &common(1, None))
                .unwrap_err()
                .to_string()
        };
        assert!(error("a:rw=read,bs=512", capabilities).contains("block size of 4096 bytes"));
        assert!(error("a:rw=read,bs=128k", capabilities).contains("at most 65536"));
        let read_only = Capabilities {
            read_only: true,
            ..capabilities
        };
        assert!(error("a:rw=rw", read_only).contains("read-only"));
    }
}

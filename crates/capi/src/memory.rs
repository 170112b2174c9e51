//! The caller's memory: every pointer that the library follows is followed here.
#![allow(unsafe_code)] // Pointers of C, which the header says must be valid for the call.

use crate::error::Failure;
use std::ffi::{CStr, c_char, c_int};
use std::mem::MaybeUninit;
use std::ptr;

/// The most parts of a vector: as many as the kernel takes.
pub(crate) const PARTS_MAX: c_int = 1024;

pub(crate) fn null(what: &str) -> Failure {
    Failure::new(
        libc::EFAULT,
        format!("{what} is NULL; pass a valid pointer"),
    )
}

fn check(pointer: *const u8, length: usize, what: &str) -> Result<(), Failure> {
    if length == 0 {
        return Ok(());
    }
    if pointer.is_null() {
        return Err(null(what));
    }
    if isize::try_from(length).is_err() || pointer.addr().checked_add(length).is_none() {
        let message = format!("{what} of {length} bytes exceeds the address space");
        return Err(Failure::new(libc::EINVAL, message));
    }
    Ok(())
}

/// Returns the text at a pointer.
///
/// # Safety
/// `pointer` is NULL or a string that stays unchanged during the call.
pub(crate) unsafe fn text<'a>(pointer: *const c_char, what: &str) -> Result<&'a str, Failure> {
    if pointer.is_null() {
        return Err(null(what));
    }
    // SAFETY: it is not NULL, so the caller passed a string.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str()
        .map_err(|_| Failure::new(libc::EINVAL, format!("{what} is not UTF-8")))
}

/// Returns the memory at a pointer, to read.
///
/// # Safety
/// `length` bytes from `pointer` on are readable, and are not changed during the call.
pub(crate) unsafe fn bytes<'a>(pointer: *const u8, length: usize) -> Result<&'a [u8], Failure> {
    check(pointer, length, "the data")?;
    if length == 0 {
        return Ok(&[]);
    }
    // SAFETY: the range is not NULL and fits into memory; the caller passed it to be read.
    Ok(unsafe { std::slice::from_raw_parts(pointer, length) })
}

/// Returns the memory at a pointer, to write.
///
/// # Safety
/// `length` bytes from `pointer` on are writable, and nothing else uses them during the call.
pub(crate) unsafe fn bytes_mut<'a>(
    pointer: *mut u8,
    length: usize,
) -> Result<&'a mut [u8], Failure> {
    check(pointer, length, "the data")?;
    if length == 0 {
        return Ok(&mut []);
    }
    // SAFETY: the range is not NULL and fits into memory; the caller passed it to be written.
    Ok(unsafe { std::slice::from_raw_parts_mut(pointer, length) })
}

/// Returns the numbers at a pointer.
///
/// # Safety
/// `count` numbers from `pointer` on are readable.
pub(crate) unsafe fn numbers(pointer: *const u32, count: usize) -> Result<Vec<u32>, Failure> {
    check(pointer.cast(), count * size_of::<u32>(), "the list")?;
    let number = |index| {
        // SAFETY: the list has that many numbers, so this is within it.
        let number = unsafe { pointer.add(index) };
        // SAFETY: the caller passed a list that can be read.
        unsafe { number.read_unaligned() }
    };
    Ok((0..count).map(number).collect())
}

/// Stores a result.
///
/// # Safety
/// `out` is NULL or writable.
pub(crate) unsafe fn store<T>(out: *mut T, value: T) -> Result<(), Failure> {
    if out.is_null() {
        return Err(null("the pointer to the result"));
    }
    // SAFETY: it is not NULL, so the caller passed a place for a `T`.
    unsafe { out.write(value) };
    Ok(())
}

/// Stores a text with its end.
///
/// # Safety
/// `size` bytes from `out` on are writable, and nothing else uses them during the call.
pub(crate) unsafe fn store_text(out: *mut c_char, size: usize, text: &str) -> Result<(), Failure> {
    // SAFETY: as for this function.
    let room = unsafe { bytes_mut(out.cast(), size) }?;
    let text = text.bytes().chain([0]);
    if text.clone().count() > size {
        let message = format!(
            "the buffer has {size} bytes, but {} are needed",
            text.count()
        );
        return Err(Failure::new(libc::ENOSPC, message));
    }
    room.iter_mut().zip(text).for_each(|(to, byte)| *to = byte);
    Ok(())
}

/// Checks that a result can be stored, before anything is made that would be lost otherwise.
pub(crate) fn storable<T>(out: *mut T) -> Result<(), Failure> {
    if out.is_null() || !out.is_aligned() {
        return Err(null("the pointer to the result"));
    }
    Ok(())
}

/// The parts of a vector, checked: their memory exists for the call, and none overlaps another.
///
/// # Safety
/// `parts` names `count` parts.
pub(crate) unsafe fn parts(
    parts: *const libc::iovec,
    count: c_int,
) -> Result<Vec<libc::iovec>, Failure> {
    let Some(length) = usize::try_from(count).ok().filter(|_| count <= PARTS_MAX) else {
        let message = format!("the vector has {count} parts; use 0 to {PARTS_MAX}");
        return Err(Failure::new(libc::EINVAL, message));
    };
    check(
        parts.cast(),
        length * size_of::<libc::iovec>(),
        "the vector",
    )?;
    let mut all = Vec::with_capacity(length);
    for index in 0..length {
        // SAFETY: the vector has that many parts, so this is within it.
        let part = unsafe { parts.add(index) };
        // SAFETY: the caller passed a vector that can be read.
        all.push(unsafe { part.read_unaligned() });
    }
    let mut ranges = Vec::with_capacity(length);
    for part in &all {
        check(part.iov_base.cast(), part.iov_len, "a part of the vector")?;
        if part.iov_len > 0 {
            ranges.push((part.iov_base.addr(), part.iov_len));
        }
    }
    ranges.sort_unstable();
    if ranges
        .windows(2)
        .any(|pair| pair[0].0 + pair[0].1 > pair[1].0)
    {
        return Err(Failure::new(libc::EINVAL, "parts of the vector overlap"));
    }
    Ok(all)
}

/// A structure of the interface that may grow: its first field is its size, as its user knows it.
///
/// # Safety
/// Consists of integers and pointers without padding between or after them, and starts with a
/// `usize`; all zeroes is a valid value and means "default".
pub(crate) unsafe trait Versioned: Copy {}

/// Takes options from a structure that may be shorter or longer than ours; NULL is all defaults.
///
/// # Safety
/// `pointer` is NULL or a structure as long as it says.
pub(crate) unsafe fn take<T: Versioned>(pointer: *const T) -> Result<T, Failure> {
    // SAFETY: all zeroes is a valid value.
    let mut value = unsafe { MaybeUninit::<T>::zeroed().assume_init() };
    if pointer.is_null() {
        return Ok(value);
    }
    // SAFETY: it is not NULL; the first field is a `usize`, the size.
    let size = unsafe { pointer.cast::<usize>().read_unaligned() };
    check_size(size)?;
    // SAFETY: the caller passed a structure of that size.
    let given = unsafe { std::slice::from_raw_parts(pointer.cast::<u8>(), size) };
    let known = size.min(size_of::<T>());
    if given[known..].iter().any(|&byte| byte != 0) {
        let message = "unknown options are set; use a later version of the library";
        return Err(Failure::new(libc::E2BIG, message));
    }
    // SAFETY: both ranges have `known` bytes, and any bytes of a user are a valid `T`: it consists
    // of integers and pointers.
    unsafe { ptr::copy_nonoverlapping(given.as_ptr(), ptr::from_mut(&mut value).cast(), known) };
    Ok(value)
}

/// Fills a structure that may be shorter than ours, as far as its user knows it; the size stays.
///
/// # Safety
/// `pointer` is NULL or a structure as long as it says.
pub(crate) unsafe fn fill<T: Versioned>(pointer: *mut T, value: &T) -> Result<(), Failure> {
    if pointer.is_null() {
        return Err(null("the structure to fill"));
    }
    let head = size_of::<usize>();
    // SAFETY: it is not NULL; the first field is a `usize`, the size.
    let size = unsafe { pointer.cast::<usize>().read_unaligned() };
    check_size(size)?;
    let known = size.min(size_of::<T>()) - head;
    let from = ptr::from_ref(value).cast::<u8>().wrapping_add(head);
    let to = pointer.cast::<u8>().wrapping_add(head);
    // SAFETY: both structures go on for `known` bytes after the size, without padding.
    unsafe { ptr::copy_nonoverlapping(from, to, known) };
    Ok(())
}

fn check_size(size: usize) -> Result<(), Failure> {
    // None of the structures will ever have a page.
    if !(size_of::<usize>()..=4096).contains(&size) {
        let message = format!("the size field of the structure is {size}; set it to sizeof");
        return Err(Failure::new(libc::EINVAL, message));
    }
    Ok(())
}

//! Recycled storage for running code: the reason why a call that does not wait allocates nothing.
//!
//! A future must not be moved after its first poll. Code that *may* have to wait must therefore be at its
//! final address before its first step, though most of it ends a moment later. That address is a [`Slot`]. It
//! is like a `Box`, but its memory comes from, and returns to, a list of free blocks that each thread keeps.
//! In the steady state, taking and returning a slot are a load and a store each.
//!
//! The lists are by size, in steps so fine (16 bytes, 64 above 1 KiB) that a million waiting evaluations lose
//! little to rounding. The size is known where the code is compiled, so the choice of the list is a constant.
//! Values larger than 16 KiB, or aligned to more than 16 bytes, use the allocator each time.
//!
//! Rejected: the caller's stack (the code could not be moved away when it turns out to wait); a pool in each
//! proc (one for each type, so nothing is shared, and threads could not share a proc); a generational arena
//! (freed only as a whole).
//!
//! All `unsafe` code for storage is here. It depends on three facts. A block comes from the global allocator
//! with exactly the layout that [`block`] returns for its list, and is freed with the same layout. A block is
//! either in a list or in one slot. A slot is the only owner of its value and drops it before its block is
//! returned.
//!
//! See docs/decisions/005-evaluations-in-recycled-storage.md.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::Cell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::ptr::{self, NonNull};

const ALIGNMENT: usize = 16;
/// Sizes are a word more than a multiple of 16. Allocators that put a word of their own before a block, as
/// glibc's does, then waste nothing, and others have a matching size class as well.
const SMALLEST: usize = 24;
const FINE_STEP: usize = 16;
const FINE_LISTS: usize = 64;
const FINE_UP_TO: usize = SMALLEST + (FINE_LISTS - 1) * FINE_STEP;
const COARSE_STEP: usize = 64;
const COARSE_LISTS: usize = 240;
const LISTS: usize = FINE_LISTS + COARSE_LISTS;
const LARGEST: usize = FINE_UP_TO + COARSE_LISTS * COARSE_STEP;
/// A list keeps about this many bytes. Blocks returned beyond that go to the allocator, so that the process
/// does not keep the memory of a burst of waiting evaluations.
const KEPT_BYTES: usize = 64 * 1024;

/// Returns the list for values of this layout, if there is one.
const fn list(layout: Layout) -> Option<usize> {
    let size = layout.size();
    if layout.align() > ALIGNMENT || size > LARGEST {
        None
    } else if size <= FINE_UP_TO {
        Some(size.saturating_sub(SMALLEST).div_ceil(FINE_STEP))
    } else {
        Some(FINE_LISTS - 1 + (size - FINE_UP_TO).div_ceil(COARSE_STEP))
    }
}

/// Returns the layout of the blocks in a list.
const fn block(list: usize) -> Layout {
    let size = if list < FINE_LISTS {
        SMALLEST + list * FINE_STEP
    } else {
        FINE_UP_TO + (list + 1 - FINE_LISTS) * COARSE_STEP
    };
    match Layout::from_size_align(size, ALIGNMENT) {
        Ok(layout) => layout,
        Err(_) => panic!("every block has a size and an alignment that are possible"),
    }
}

/// The header of a free block.
struct Free {
    next: *mut Free,
}

/// The free blocks of a thread. The block returned last is kept apart from its list, so that code that takes
/// and returns a block over and over touches a single word.
struct FreeBlocks {
    latest: [Cell<*mut Free>; LISTS],
    first: [Cell<*mut Free>; LISTS],
    count: [Cell<u32>; LISTS],
}

thread_local! {
    static FREE_BLOCKS: FreeBlocks = const {
        FreeBlocks {
            latest: [const { Cell::new(ptr::null_mut()) }; LISTS],
            first: [const { Cell::new(ptr::null_mut()) }; LISTS],
            count: [const { Cell::new(0) }; LISTS],
        }
    };
}

impl FreeBlocks {
    #[inline]
    fn take(&self, list: usize) -> Option<NonNull<u8>> {
        match NonNull::new(self.latest[list].replace(ptr::null_mut())) {
            Some(latest) => Some(latest.cast()),
            None => self.take_from_list(list),
        }
    }

    #[inline(never)]
    fn take_from_list(&self, list: usize) -> Option<NonNull<u8>> {
        let free = NonNull::new(self.first[list].get())?;
        // SAFETY: the list points to a free block. `give` wrote its header, and no code has touched it since.
        self.first[list].set(unsafe { free.as_ref() }.next);
        self.count[list].set(self.count[list].get() - 1);
        Some(free.cast())
    }

    /// Returns true if the block was kept.
    ///
    /// # Safety
    /// The block has this list's layout, and no code uses it any more.
    #[inline]
    unsafe fn give(&self, list: usize, at: NonNull<u8>) -> bool {
        if self.latest[list].get().is_null() {
            self.latest[list].set(at.cast().as_ptr());
            return true;
        }
        // SAFETY: the caller's promise is passed on.
        unsafe { self.give_to_list(list, at) }
    }

    /// # Safety
    /// As for [`give`](Self::give).
    #[inline(never)]
    unsafe fn give_to_list(&self, list: usize, at: NonNull<u8>) -> bool {
        let count = self.count[list].get();
        if count as usize >= KEPT_BYTES / block(list).size() {
            return false;
        }
        let free = at.cast::<Free>();
        // SAFETY: a block has at least 24 bytes, is aligned to 16, and the caller owns it.
        unsafe { free.write(Free { next: self.first[list].get() }) };
        self.first[list].set(free.as_ptr());
        self.count[list].set(count + 1);
        true
    }
}

impl Drop for FreeBlocks {
    fn drop(&mut self) {
        for list in 0..LISTS {
            while let Some(at) = self.take(list) {
                // SAFETY: it was taken out, so no other code has it; its layout is the list's.
                unsafe { dealloc(at.as_ptr(), block(list)) };
            }
        }
    }
}

#[inline]
fn take(layout: Layout) -> NonNull<u8> {
    // A thread that is ending has no lists any more, and allocates.
    let kept = list(layout).and_then(|list| FREE_BLOCKS.try_with(|free| free.take(list)).ok().flatten());
    kept.unwrap_or_else(|| allocate(layout))
}

/// # Safety
/// `at` came from [`take`] for the same layout, and no code uses it any more.
#[inline]
unsafe fn give(at: NonNull<u8>, layout: Layout) {
    let is_kept = list(layout).is_some_and(|list| {
        // SAFETY: `take` returned a block of this list, and the caller no longer uses it.
        FREE_BLOCKS.try_with(|free| unsafe { free.give(list, at) }).unwrap_or(false)
    });
    if !is_kept {
        // SAFETY: the caller's promise is passed on, and the block is not kept.
        unsafe { free(at, layout) };
    }
}

/// Returns the layout with which the block for a value is allocated.
fn whole(layout: Layout) -> Layout {
    list(layout).map_or(at_least_a_byte(layout), block)
}

fn at_least_a_byte(layout: Layout) -> Layout {
    Layout::from_size_align(layout.size().max(1), layout.align()).unwrap_or(layout)
}

#[cold]
fn allocate(layout: Layout) -> NonNull<u8> {
    let whole = whole(layout);
    // SAFETY: the layouts of `block` and of `at_least_a_byte` are not empty.
    NonNull::new(unsafe { alloc(whole) }).unwrap_or_else(|| handle_alloc_error(whole))
}

/// # Safety
/// `at` was allocated for this layout by [`allocate`], possibly on another thread, and neither a slot nor a
/// list contains it.
#[cold]
unsafe fn free(at: NonNull<u8>, layout: Layout) {
    // SAFETY: it was allocated with the same layout.
    unsafe { dealloc(at.as_ptr(), whole(layout)) };
}

/// A value in recycled storage, owned like that of a `Box`, and pinned from the beginning.
pub struct Slot<T: ?Sized> {
    at: NonNull<T>,
    owns: PhantomData<T>,
}

// SAFETY: a slot owns its value and nothing else; the block can be returned on any thread.
unsafe impl<T: ?Sized + Send> Send for Slot<T> {}
// SAFETY: a shared slot provides only a shared reference to the value.
unsafe impl<T: ?Sized + Sync> Sync for Slot<T> {}

impl<T> Slot<T> {
    /// Constructs the value in place: constructing it first and moving it there costs more than all the rest.
    #[inline]
    pub fn pin_with(make: impl FnOnce() -> T) -> Pin<Self> {
        let block = Block { at: take(Layout::new::<T>()), layout: Layout::new::<T>() };
        let at = block.at.cast::<T>();
        // SAFETY: the block is as large and as aligned as `T` needs, and no other code has it.
        unsafe { at.write(make()) };
        std::mem::forget(block);
        // SAFETY: the value does not move until `drop`, which drops it in place before the block is returned.
        unsafe { Pin::new_unchecked(Self { at, owns: PhantomData }) }
    }

    #[cfg(test)]
    pub fn pin(value: T) -> Pin<Self> {
        Self::pin_with(|| value)
    }
}

/// A block without a value, which is returned when a panic drops this.
struct Block {
    at: NonNull<u8>,
    layout: Layout,
}

impl Drop for Block {
    #[cold]
    fn drop(&mut self) {
        // SAFETY: the block was taken for this layout, and has no value or no value any more.
        unsafe { give(self.at, self.layout) };
    }
}

impl<T: Future<Output = ()> + 'static> Slot<T> {
    /// Erases the type, for executors that only run the code.
    #[inline]
    pub fn erase(slot: Pin<Self>) -> Pin<Slot<dyn Future<Output = ()>>> {
        // SAFETY: only the pointer is taken out; the value is not moved and remains pinned below.
        let slot = std::mem::ManuallyDrop::new(unsafe { Pin::into_inner_unchecked(slot) });
        let at: NonNull<dyn Future<Output = ()>> = slot.at;
        // SAFETY: ownership passed from the slot above, which is not dropped, to this one.
        unsafe { Pin::new_unchecked(Slot { at, owns: PhantomData }) }
    }
}

impl<T: ?Sized> Deref for Slot<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the slot owns a live value.
        unsafe { self.at.as_ref() }
    }
}

impl<T: ?Sized> DerefMut for Slot<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the slot owns a live value, and is borrowed alone.
        unsafe { self.at.as_mut() }
    }
}

impl<T: ?Sized> Slot<T> {
    /// Drops the slot as `drop` does, but inlined into the caller. The compiler makes `drop` a separate
    /// function, and calling it is a third of the time of a call that does not wait.
    #[inline(always)]
    pub fn dispose(slot: Pin<Self>) {
        // SAFETY: the value stays where it is until it is dropped.
        let mut slot = std::mem::ManuallyDrop::new(unsafe { Pin::into_inner_unchecked(slot) });
        // SAFETY: the slot is not dropped again, nor used after this.
        unsafe { slot.end() };
    }

    /// # Safety
    /// No code uses or drops the slot after this.
    #[inline(always)]
    unsafe fn end(&mut self) {
        let (at, layout) = (self.at.cast(), Layout::for_value::<T>(self));
        // Returns the block if dropping the value panics.
        let block = Block { at, layout };
        // SAFETY: the value is live, and the caller promises that no code sees it after this.
        unsafe { ptr::drop_in_place(self.at.as_ptr()) };
        // Not left to `block`, so that decisions that depend on the layout are made at compile time.
        std::mem::forget(block);
        // SAFETY: the block was taken for this layout, and its value is gone.
        unsafe { give(at, layout) };
    }
}

impl<T: ?Sized> Drop for Slot<T> {
    fn drop(&mut self) {
        // SAFETY: this is the end of the slot.
        unsafe { self.end() };
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    use proptest::prelude::*;
    use std::rc::Rc;

    #[test]
    fn every_size_has_a_list_whose_blocks_hold_it_with_little_to_spare() {
        // Miri takes too long for all of them.
        for size in (0..=LARGEST).step_by(if cfg!(miri) { 61 } else { 1 }) {
            let layout = Layout::from_size_align(size, 8).unwrap();
            let block = block(list(layout).unwrap());
            assert!(block.size() >= size, "{size}");
            assert!(block.size() - size.max(SMALLEST) < COARSE_STEP, "{size}");
        }
        assert_eq!(list(Layout::from_size_align(LARGEST, 8).unwrap()), Some(LISTS - 1));
        assert_eq!(list(Layout::from_size_align(LARGEST + 1, 8).unwrap()), None);
        assert_eq!(list(Layout::from_size_align(32, 64).unwrap()), None);
    }

    #[test]
    fn the_storage_of_a_dropped_value_is_used_for_the_next() {
        let first = Slot::pin([1_u64; 9]);
        let address = ptr::from_ref(&*first).addr();
        drop(first);
        let second = Slot::pin([2_u64; 9]);
        assert_eq!(ptr::from_ref(&*second).addr(), address);
    }

    #[test]
    fn values_that_are_large_aligned_or_empty_are_kept_too() {
        #[repr(align(128))]
        struct Aligned(u8);
        #[repr(align(64))]
        struct Empty;
        let slots = (Slot::pin([7_u8; 40_000]), Slot::pin(Aligned(9)), Slot::pin(Empty), Slot::pin(()));
        assert_eq!(slots.0[39_999], 7);
        assert_eq!(ptr::from_ref(&*slots.1).addr() % 128, 0);
        assert_eq!(slots.1.0, 9);
        assert_eq!(ptr::from_ref(&*slots.2).addr() % 64, 0);
    }

    #[test]
    fn a_value_is_disposed_of_like_dropped() {
        let value = Rc::new(());
        let slot = Slot::pin(Rc::clone(&value));
        let address = ptr::from_ref(&*slot).addr();
        Slot::dispose(slot);
        assert_eq!(Rc::strong_count(&value), 1);
        assert_eq!(ptr::from_ref(&*Slot::pin(value)).addr(), address);
    }

    #[test]
    fn a_value_whose_drop_panics_still_gives_its_storage_back() {
        struct Panics(#[allow(dead_code, reason = "to have a size")] [u64; 5]);
        impl Drop for Panics {
            fn drop(&mut self) {
                panic!("as meant");
            }
        }
        let slot = Slot::pin(Panics([0; 5]));
        let address = ptr::from_ref(&*slot).addr();
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(slot))).unwrap_err();
        assert_eq!(panic.downcast_ref(), Some(&"as meant"));
        assert_eq!(ptr::from_ref(&*Slot::pin([0_u64; 5])).addr(), address);
    }

    #[test]
    fn a_slot_can_be_dropped_on_another_thread() {
        let slot = Slot::pin(vec![1, 2, 3]);
        std::thread::spawn(move || assert_eq!(*slot, [1, 2, 3])).join().unwrap();
    }

    /// A value with a byte pattern of its own, which counts its drop.
    fn held(number: u8, size: usize, drops: &Rc<Cell<usize>>) -> Box<dyn Bytes> {
        struct Counted<const N: usize>([u8; N], Rc<Cell<usize>>);
        impl<const N: usize> Drop for Counted<N> {
            fn drop(&mut self) {
                self.1.set(self.1.get() + 1);
            }
        }
        impl<const N: usize> Bytes for Counted<N> {
            fn bytes(&self) -> &[u8] {
                &self.0
            }
        }
        let drops = Rc::clone(drops);
        match size {
            0 => Box::new(Slot::pin(Counted([number; 3], drops))),
            1 => Box::new(Slot::pin(Counted([number; 24], drops))),
            2 => Box::new(Slot::pin(Counted([number; 200], drops))),
            _ => Box::new(Slot::pin(Counted([number; 2_000], drops))),
        }
    }
    trait Bytes {
        fn bytes(&self) -> &[u8];
    }
    impl<T: Bytes> Bytes for Pin<Slot<T>> {
        fn bytes(&self) -> &[u8] {
            (**self).bytes()
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 256 }))]
        #[test]
        fn no_two_values_share_storage_and_each_is_dropped_once(
            steps in prop::collection::vec((any::<u8>(), 0..4_usize, any::<prop::sample::Index>(), any::<bool>()), 1..60)
        ) {
            let drops = Rc::new(Cell::new(0));
            let mut live: Vec<(u8, Box<dyn Bytes>)> = Vec::new();
            let mut made = 0;
            for (number, size, index, add) in steps {
                if add || live.is_empty() {
                    live.push((number, held(number, size, &drops)));
                    made += 1;
                } else {
                    live.swap_remove(index.index(live.len()));
                }
                for (number, value) in &live {
                    prop_assert!(value.bytes().iter().all(|byte| byte == number));
                }
                prop_assert_eq!(drops.get() + live.len(), made);
            }
        }
    }
}

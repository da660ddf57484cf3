//! Writing into the folders of this machine.

use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;

use super::draft::{self, Draft};
use super::spot::Spot;
use super::{Begun, Body, OnExisting, Sent, Stored, UploadedPart, Verified, Writing};
use crate::local::{failed, working};
use crate::{Store, StoreError};

/// Chooses the id of an upload whose draft [`create`] creates.
pub(super) async fn plan(store: &Store, path: &str, options: &Writing) -> Result<Begun, StoreError> {
    let target = writable(store, path, options)?;
    let is_kept = options.on_existing == OnExisting::Keep;
    working(store, path, BEGINNING, move || refuse_existing(target.path(), is_kept)).await?;
    let id = draft::random_id();
    Ok(Begun { path: path.to_owned(), id, writing: options.clone(), has_checksums: false })
}

/// Creates the draft of a planned upload.
pub(super) async fn create(store: &Store, begun: &Begun) -> Result<Draft, StoreError> {
    let target = target(store, &begun.path)?;
    let Begun { path, id, writing, .. } = begun.clone();
    working(store, &path, BEGINNING, move || Draft::create(&target, &id, &writing)).await
}

/// Creates the draft of an upload that no later process resumes.
pub(super) async fn begin_whole(
    store: &Store,
    path: &str,
    options: &Writing,
) -> Result<(Begun, Draft), StoreError> {
    let target = writable(store, path, options)?;
    let (is_kept, writing) = (options.on_existing == OnExisting::Keep, options.clone());
    let (draft, id) = working(store, path, BEGINNING, move || {
        refuse_existing(target.path(), is_kept)?;
        Draft::create_whole(&target, &writing)
    })
    .await?;
    Ok((Begun { path: path.to_owned(), id, writing: options.clone(), has_checksums: false }, draft))
}

/// The step in which a draft is created, for errors.
const BEGINNING: &str = "beginning to write it";

/// Returns the target of a path, if it can be written in this way.
fn writable(store: &Store, path: &str, options: &Writing) -> Result<Spot, StoreError> {
    if matches!(options.on_existing, OnExisting::ReplaceIf(_)) {
        return Err(StoreError::Impossible { name: store.name(path), what: "comparing an entity tag" });
    }
    target(store, path)
}

fn refuse_existing(target: &Path, is_kept: bool) -> io::Result<()> {
    match is_kept && target.symlink_metadata().is_ok() {
        true => Err(io::ErrorKind::AlreadyExists.into()),
        false => Ok(()),
    }
}

pub(super) async fn resume(store: &Store, saved: &Begun) -> Result<Option<Draft>, StoreError> {
    let (target, id) = (target(store, &saved.path)?, saved.id.clone());
    working(store, &saved.path, "looking for its draft", move || Draft::open(&target, &id)).await
}

pub(super) async fn discard(store: &Store, saved: &Begun) -> Result<(), StoreError> {
    let (target, id) = (target(store, &saved.path)?, saved.id.clone());
    working(store, &saved.path, "removing its draft", move || draft::remove(&target, &id)).await
}

pub(super) fn discard_now(store: &Store, saved: &Begun) -> Result<(), StoreError> {
    let removed = draft::remove(&target(store, &saved.path)?, &saved.id);
    removed.map_err(|error| failed(store, &saved.path, "removing its draft", &error))
}

pub(super) async fn part(
    store: &Store,
    begun: &Begun,
    draft: &Draft,
    number: u32,
    offset: u64,
    body: Body,
) -> Result<Sent, StoreError> {
    let (draft, size) = (draft.clone(), body.len() as u64);
    let what = format!("writing {size} bytes at {offset}");
    let crc32c = working(store, &begun.path, &what, move || {
        let mut position = offset;
        for piece in body.pieces() {
            draft.write(position, piece)?;
            position += piece.len() as u64;
        }
        Ok(body.crc32c())
    })
    .await?;
    store.counts().written.fetch_add(size, Ordering::Relaxed);
    let part = UploadedPart { number, size, tag: String::new(), crc32c, is_verified: false };
    Ok(Sent { part, was_overloaded: false })
}

/// A part of a file of this machine, written as its bytes arrive.
///
/// Fetched bytes go to the disk while they are still in the caches of a core, and need no further memory.
/// [`Upload::part`](crate::Upload::part) needs all bytes of a part at once, as requests do.
#[derive(Debug)]
pub struct PartWriter {
    pub(super) store: Store,
    pub(super) path: String,
    pub(super) draft: Draft,
    pub(super) number: u32,
    pub(super) offset: u64,
    pub(super) size: u64,
    pub(super) crc32c: u32,
    pub(super) error: Option<StoreError>,
}

impl PartWriter {
    /// Writes bytes at a position of the object: after the previous bytes, or again from a position between.
    /// Blocks the thread.
    ///
    /// # Errors
    /// Errors of the disk, and [`io::ErrorKind::InvalidInput`] if the bytes would leave a gap.
    /// [`finish`](Self::finish) returns the error again.
    pub fn write(&mut self, position: u64, bytes: &[u8]) -> io::Result<()> {
        let written = self.try_write(position, bytes);
        if let Err(error) = &written {
            let what = format!("writing {} bytes at {position}", bytes.len());
            self.error = Some(failed(&self.store, &self.path, &what, error));
        }
        written
    }

    fn try_write(&mut self, position: u64, bytes: &[u8]) -> io::Result<()> {
        let size = position.checked_sub(self.offset).filter(|size| *size <= self.size);
        let size = size.ok_or(io::ErrorKind::InvalidInput)?;
        if size < self.size {
            self.crc32c = self.draft.crc32c(self.offset..position)?;
        }
        self.draft.write(position, bytes)?;
        self.crc32c = crc32c::crc32c_append(self.crc32c, bytes);
        self.size = size + bytes.len() as u64;
        self.store.counts().written.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Returns the written bytes as a part.
    ///
    /// # Errors
    /// The last error of [`write`](Self::write).
    pub fn finish(self) -> Result<UploadedPart, StoreError> {
        let Self { number, size, crc32c, .. } = self;
        let part = UploadedPart { number, size, tag: String::new(), crc32c, is_verified: false };
        self.error.map_or(Ok(part), Err)
    }
}

pub(super) async fn sync(store: &Store, begun: &Begun, draft: &Draft) -> Result<(), StoreError> {
    let draft = draft.clone();
    working(store, &begun.path, "syncing its draft", move || draft.sync()).await
}

pub(super) async fn complete(
    store: &Store,
    begun: &Begun,
    draft: &Draft,
    parts: Vec<UploadedPart>,
) -> Result<Stored, StoreError> {
    let stored = Stored { verified: Verified::No, ..Stored::of(&parts) };
    let (draft, on_existing) = (draft.clone(), begun.writing.on_existing.clone());
    working(store, &begun.path, "moving it into place", move || draft.complete(&parts, &on_existing)).await?;
    Ok(stored)
}

pub(super) async fn completed(
    store: &Store,
    begun: &Begun,
    parts: Vec<UploadedPart>,
) -> Result<Option<Stored>, StoreError> {
    let target = target(store, &begun.path)?;
    let stored = Stored { verified: Verified::No, ..Stored::of(&parts) };
    let is_there =
        working(store, &begun.path, "checking whether it is complete", move || draft::is_of(&target, &parts));
    Ok(is_there.await?.then_some(stored))
}

/// Writes a whole file through a draft, so that no reader sees it half written.
pub(super) async fn put(
    store: &Store,
    path: &str,
    body: Body,
    options: &Writing,
) -> Result<Stored, StoreError> {
    let (begun, draft) = begin_whole(store, path, options).await?;
    let written = async {
        let part = part(store, &begun, &draft, 1, 0, body).await?.part;
        complete(store, &begun, &draft, vec![part]).await
    };
    let written = written.await;
    if written.is_err() {
        // The error of the write matters, not that of the removal.
        let _ = discard(store, &begun).await;
    }
    written
}

fn target(store: &Store, path: &str) -> Result<Spot, StoreError> {
    if path.is_empty() || path.ends_with('/') {
        return Err(StoreError::Impossible { name: store.name(path), what: "writing a folder" });
    }
    let path = Path::new("/").join(path);
    // An earlier run may have begun it elsewhere.
    let beneath = store.beneath().filter(|beneath| path.starts_with(beneath.folder())).cloned();
    Ok(Spot::new(path, beneath))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use bytes::Bytes;

    use super::*;
    use crate::Store;

    fn keeping() -> Writing {
        Writing { on_existing: OnExisting::Keep, ..Writing::default() }
    }

    fn place(folder: &tempfile::TempDir, name: &str) -> (Store, String, PathBuf) {
        let path = folder.path().join(name);
        let (store, path_in_store) = Store::from_url(path.to_str().unwrap()).unwrap();
        (store, path_in_store, path)
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[tokio::test]
    async fn parts_come_in_any_order_and_nothing_is_seen_before_all_are_there() {
        let folder = tempfile::tempdir().unwrap();
        let (store, path, target) = place(&folder, "new/folders/a b");
        let upload = store.begin(&path, &Writing::default()).await.unwrap();
        let (second, first) = tokio::join!(
            upload.part(2, 5, Bytes::from_static(b"world")),
            upload.part(1, 0, Bytes::from_static(b"hello"))
        );
        let parts = [second.unwrap().part, first.unwrap().part];
        assert!(!target.exists());
        let mut listing = store.list(&format!("{}/", path.rsplit_once('/').unwrap().0));
        assert!(listing.next().await.unwrap().is_none());
        let short = upload.complete(&parts[1..]).await.unwrap_err();
        assert!(short.to_string().contains("the draft has 10 bytes"), "{short}");
        let stored = upload.complete(&parts).await.unwrap();
        assert_eq!((stored.size, std::fs::read(&target).unwrap()), (10, b"helloworld".to_vec()));
        assert_eq!(names(target.parent().unwrap()), ["a b"]);
        assert_eq!(upload.complete(&parts).await.unwrap(), stored);
        assert_eq!(store.counts().written(), 10);
    }

    #[tokio::test]
    async fn a_part_that_is_written_as_it_comes_is_as_one_that_came_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let (store, path, target) = place(&folder, "x");
        let upload = store.begin(&path, &Writing::default()).await.unwrap();
        let first = upload.part(1, 0, Bytes::from_static(b"hello ")).await.unwrap().part;
        let at_once = upload.part(2, 6, Bytes::from_static(b"dear world")).await.unwrap().part;
        let mut writer = upload.writer(2, 6).unwrap();
        for (position, bytes) in [(6, "bear old"), (6, "dear wool"), (13, "rl"), (15, "d")] {
            writer.write(position, bytes.as_bytes()).unwrap();
        }
        assert_eq!(writer.finish().unwrap(), at_once);
        upload.complete(&[first, at_once]).await.unwrap();
        assert_eq!(std::fs::read(&target).unwrap(), b"hello dear world");
    }

    #[tokio::test]
    async fn no_link_below_a_folder_is_followed_also_one_that_is_put_there_later() {
        use std::os::unix::fs::symlink;
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(at("in")).unwrap();
        std::fs::create_dir(at("victim")).unwrap();
        symlink("../victim", at("in/link")).unwrap();
        let (open, below_link, _) = place(&folder, "in/link/x");
        let store = open.clone().without_links(below_link.strip_suffix("link/x").unwrap());
        let denied = store.put(&below_link, Bytes::new(), &Writing::default()).await.unwrap_err();
        assert!(matches!(denied, StoreError::Denied { .. }), "{denied}");
        let (_, path, target) = place(&folder, "in/new/folder/x");
        for once in [false, true] {
            let writing = Writing { once, ..Writing::default() };
            let upload = store.begin(&path, &writing).await.unwrap();
            let part = upload.part(1, 0, Bytes::from_static(b"x")).await.unwrap().part;
            std::fs::rename(at("in/new"), at("in/former")).unwrap();
            symlink("../victim", at("in/new")).unwrap();
            let denied = upload.complete(std::slice::from_ref(&part)).await.unwrap_err();
            assert!(matches!(denied, StoreError::Denied { .. }), "{denied}");
            std::fs::remove_file(at("in/new")).unwrap();
            std::fs::rename(at("in/former"), at("in/new")).unwrap();
            upload.complete(&[part]).await.unwrap();
            assert_eq!(std::fs::read(&target).unwrap(), b"x");
        }
        assert!(names(&at("victim")).is_empty());
        open.put(&below_link, Bytes::new(), &Writing::default()).await.unwrap();
        assert_eq!(names(&at("victim")), ["x"]);
    }

    #[tokio::test]
    async fn a_copy_gives_others_no_more_than_is_allowed() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        for (mode, expected) in [(0o100_600, 0o600), (0o104_440, 0o640), (0o106_755, 0o644)] {
            let (store, path, target) = place(&folder, &format!("{mode:o}"));
            let writing = Writing { mode: Some(mode), ..Writing::default() };
            store.put(&path, Bytes::new(), &writing).await.unwrap();
            assert_eq!(target.metadata().unwrap().permissions().mode() & 0o7777, expected);
        }
    }

    #[tokio::test]
    async fn what_a_killed_process_left_is_removed_by_the_next_write_unless_its_owner_runs() {
        let folder = tempfile::tempdir().unwrap();
        let (store, path, target) = place(&folder, "x");
        // As on a file system without unnamed files.
        let (draft, _) = Draft::create_named(&Spot::new(target.clone(), None), &Writing::default()).unwrap();
        // Its owner still runs.
        store.put(&path, Bytes::from_static(b"one"), &Writing::default()).await.unwrap();
        assert_eq!(names(folder.path()).len(), 2);
        drop(draft);
        store.put(&path, Bytes::from_static(b"two"), &Writing::default()).await.unwrap();
        assert_eq!(
            (names(folder.path()), std::fs::read(&target).unwrap()),
            (vec!["x".to_owned()], b"two".to_vec())
        );
    }

    #[tokio::test]
    async fn a_process_that_is_killed_leaves_no_parts_that_no_process_can_resume() {
        let folder = tempfile::tempdir().unwrap();
        let (store, path, _) = place(&folder, "x");
        for (once, left) in [(false, 2), (true, 0)] {
            let writing = Writing { once, ..Writing::default() };
            // A process that is killed drops the upload without an abort.
            for _ in 0..2 {
                let upload = store.begin(&path, &writing).await.unwrap();
                upload.part(1, 0, Bytes::from_static(b"part")).await.unwrap();
            }
            let drafts = names(folder.path());
            assert_eq!(drafts.len(), left, "{drafts:?}");
            drafts.iter().for_each(|name| std::fs::remove_file(folder.path().join(name)).unwrap());
        }
    }

    #[tokio::test]
    async fn a_file_replaces_another_one_although_a_hidden_name_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        let (store, path, target) = place(&folder, "x");
        std::fs::write(&target, "former").unwrap();
        let writing = Writing { once: true, ..Writing::default() };
        let upload = store.begin(&path, &writing).await.unwrap();
        let other = Draft::create_named(&Spot::new(target.clone(), None), &writing).unwrap();
        let part = upload.part(1, 0, Bytes::from_static(b"latter")).await.unwrap().part;
        assert_eq!(names(folder.path()).len(), 2);
        let stored = upload.complete(std::slice::from_ref(&part)).await.unwrap();
        assert_eq!(std::fs::read(&target).unwrap(), b"latter");
        assert_eq!(names(folder.path()).len(), 2);
        assert_eq!(upload.complete(&[part]).await.unwrap(), stored);
        drop(other);
    }

    /// A process that is killed after the note and before the upload left nothing that is not noted.
    #[tokio::test]
    async fn an_upload_is_noted_before_its_draft_exists() {
        let folder = tempfile::tempdir().unwrap();
        let (store, path, _) = place(&folder, "x");
        let (mut noted, writing) = (None, Writing::default());
        let refused = store.begin_noted(&path, &writing, |begun| {
            noted = Some(begun.clone());
            Err(names(folder.path()).len())
        });
        assert_eq!(refused.await.unwrap_err(), 0);
        let noted = noted.unwrap();
        assert!(store.resume(&noted).await.unwrap().is_none());
        store.discard(&noted).await.unwrap();
        let upload =
            store.begin_noted(&path, &Writing::default(), |_| Ok::<_, ()>(())).await.unwrap().unwrap();
        assert_eq!(names(folder.path()).len(), 1);
        upload.abort().await.unwrap();
    }

    /// A folder that was a mistake kept a run from starting again, also with the right one.
    #[tokio::test]
    async fn a_draft_that_could_not_be_created_is_discarded() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), "").unwrap();
        let (store, path, _) = place(&folder, "file/x");
        let guarded = store.clone().without_links(path.strip_suffix("file/x").unwrap());
        for store in [store, guarded] {
            let mut noted = None;
            let note = |begun: &Begun| {
                noted = Some(begun.clone());
                Ok::<_, ()>(())
            };
            assert!(store.begin_noted(&path, &Writing::default(), note).await.unwrap().is_err());
            store.discard(&noted.unwrap()).await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_gap_is_no_part() {
        let folder = tempfile::tempdir().unwrap();
        let (store, path, _) = place(&folder, "x");
        let upload = store.begin(&path, &Writing::default()).await.unwrap();
        for position in [4, 7] {
            let mut writer = upload.writer(2, 5).unwrap();
            writer.write(5, b"a").unwrap();
            assert_eq!(writer.write(position, b"b").unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
            let error = writer.finish().unwrap_err();
            assert!(error.to_string().contains(&format!("writing 1 bytes at {position}")), "{error}");
        }
    }

    #[tokio::test]
    async fn another_run_goes_on_and_sees_when_the_draft_is_not_what_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let (store, path, target) = place(&folder, "x");
        let upload = store.begin(&path, &Writing::default()).await.unwrap();
        let first = upload.part(1, 0, Bytes::from_static(b"hello")).await.unwrap().part;
        let saved = serde_json::to_string(upload.begun()).unwrap();
        drop(upload);
        let saved: Begun = serde_json::from_str(&saved).unwrap();
        let upload = store.resume(&saved).await.unwrap().unwrap();
        let second = upload.part(2, 5, Bytes::from_static(b"world")).await.unwrap().part;
        let lost = UploadedPart { crc32c: 1, ..first.clone() };
        let error = upload.complete(&[lost, second.clone()]).await.unwrap_err();
        assert!(error.to_string().contains("part 1"), "{error}");
        upload.complete(&[first, second]).await.unwrap();
        assert_eq!(std::fs::read(&target).unwrap(), b"helloworld");
    }

    #[tokio::test]
    async fn what_is_discarded_is_gone_and_cannot_be_resumed() {
        let folder = tempfile::tempdir().unwrap();
        let (store, path, _) = place(&folder, &"ä".repeat(127));
        let upload = store.begin(&path, &Writing::default()).await.unwrap();
        store.discard(upload.begun()).await.unwrap();
        upload.abort().await.unwrap();
        assert!(names(folder.path()).is_empty());
        assert!(store.resume(upload.begun()).await.unwrap().is_none());
        let elsewhere = Begun { id: "../../x".to_owned(), ..upload.begun().clone() };
        let error = store.discard(&elsewhere).await.unwrap_err().to_string();
        assert!(error.ends_with(": removing its draft failed: this is not the name of a file"), "{error}");
    }

    #[tokio::test]
    async fn what_is_there_is_kept_if_it_is_to_be_kept() {
        let folder = tempfile::tempdir().unwrap();
        let (store, path, target) = place(&folder, "x");
        let upload = store.begin(&path, &keeping()).await.unwrap();
        let part = upload.part(1, 0, Bytes::from_static(b"late")).await.unwrap().part;
        store.put(&path, Bytes::from_static(b"early"), &keeping()).await.unwrap();
        for refused in [
            upload.complete(&[part]).await.unwrap_err(),
            store.put(&path, Bytes::new(), &keeping()).await.unwrap_err(),
        ] {
            assert!(matches!(&refused, StoreError::Refused { .. }), "{refused}");
        }
        upload.abort().await.unwrap();
        assert_eq!(std::fs::read(&target).unwrap(), b"early");
        assert_eq!(names(folder.path()), ["x"]);
        let stored = store.put(&path, Bytes::new(), &Writing::default()).await.unwrap();
        assert_eq!((stored.size, target.metadata().unwrap().len()), (0, 0));
        let tag = Writing { on_existing: OnExisting::ReplaceIf("a".to_owned()), ..Writing::default() };
        assert!(matches!(store.begin(&path, &tag).await, Err(StoreError::Impossible { .. })));
    }

    #[tokio::test]
    async fn a_web_server_and_a_folder_cannot_be_written() {
        let (store, path) = Store::from_url("http://example.org/x").unwrap();
        let error = store.put(&path, Bytes::new(), &Writing::default()).await.unwrap_err();
        assert_eq!(error.to_string(), "writing is not possible at `http://example.org/x`");
        let (store, path) = Store::from_url("/tmp/").unwrap();
        let error = store.begin(&path, &Writing::default()).await.err().unwrap();
        assert_eq!(error.to_string(), "writing a folder is not possible at `/tmp/`");
    }
}

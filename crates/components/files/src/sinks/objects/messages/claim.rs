//! The path of an object, and the decision for one that is free.

use thalweg_engine::Error;

use super::Messages;

impl Messages {
    /// True if every object has a number.
    pub(super) fn is_numbered(&self) -> bool {
        self.numbers_first(&self.target.path)
    }

    /// True if the first object of a name has a number.
    fn numbers_first(&self, name: &str) -> bool {
        self.rotate.is_some() || self.numbers.begin_at_first(name)
    }

    /// Returns the path of the object with this number.
    pub(super) fn path(&self, number: u64) -> String {
        self.path_of(&self.target.path, number)
    }

    /// Returns the path of the object of a name with this number.
    pub(in crate::sinks::objects) fn path_of(&self, name: &str, number: u64) -> String {
        match number == 1 && !self.numbers_first(name) {
            true => name.to_owned(),
            false => self.numbers.path(name, number),
        }
    }

    /// Returns the path of the object, as far as it is decided.
    pub(in crate::sinks::objects) fn present_path(&self) -> String {
        match &self.object.upload {
            // An earlier run may have named it by another configuration.
            Some(upload) => upload.begun().path.clone(),
            None => self.path(self.object.number),
        }
    }

    /// Decides the number of the object for good, before anything of it is visible or begun. Returns its
    /// path.
    pub(super) async fn claim(&mut self) -> Result<String, Error> {
        let is_further = !self.is_numbered() && self.object.number > 1;
        // The name of another object may have made a folder.
        while !self.object.is_claimed
            && self.ids.is_some()
            && self.target.is_folder(&self.path(self.object.number))
        {
            self.object.number += 1;
        }
        // Of a name that messages decide, this run and those before it know the numbers.
        let is_first = self.spares_former && self.object.number == 1;
        if !self.object.is_claimed && (self.takes_free || is_first || is_further && self.ids.is_none()) {
            self.object.number = self.free(self.object.number).await?;
            if is_further && self.ids.is_none() {
                let (first, path) = (self.path(1), self.path(self.object.number));
                let (first, path) = (self.target.store.name(&first), self.target.store.name(&path));
                tracing::warn!("an earlier run completed `{first}`: further messages go to `{path}`");
            }
        }
        self.object.is_claimed = true;
        Ok(self.path(self.object.number))
    }

    /// Returns the number of an object that does not exist, from this number on. Where the existing ones have
    /// no gaps it is the first, found with few requests.
    async fn free(&mut self, number: u64) -> Result<u64, Error> {
        let target = self.target.clone();
        let (mut low, mut free, mut step) = (number, number, 1);
        while target.exists(&self.path(free)).await? {
            low = free + 1;
            free += step;
            step *= 2;
        }
        while low < free {
            let middle = low + (free - low) / 2;
            match target.exists(&self.path(middle)).await? {
                true => low = middle + 1,
                false => free = middle,
            }
        }
        Ok(free)
    }

    /// True if the first object exists, and is not known to be of this sink. With a state, it may be of this
    /// sink under another name, and an empty one must not replace it.
    pub(super) async fn has_former(&mut self) -> Result<bool, Error> {
        if self.journal.is_none() || self.object.is_claimed {
            return Ok(false);
        }
        let (target, path) = (self.target.clone(), self.path(1));
        target.exists(&path).await
    }
}

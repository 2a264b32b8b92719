//! Not written yet.
#[repr(transparent)]
#[derive(Clone)]
pub struct Zset(Box<u8>);
impl Default for Zset {
    fn default() -> Self {
        Zset(Box::new(0))
    }
}
impl Zset {
    pub fn is_empty(&self) -> bool {
        true
    }
    pub fn encoding(&self) -> &'static str {
        "listpack"
    }
    pub fn memory(&self) -> usize {
        1
    }
    pub fn len(&self) -> usize {
        0
    }
    pub fn iter(
        &self,
    ) -> impl DoubleEndedIterator<Item = (crate::raw::listpack::Element<'_>, f64)> {
        std::iter::empty()
    }
    pub fn free_effort(&self) -> usize {
        0
    }
}
#[derive(Clone, Copy)]
pub struct ZsetLimits {
    pub listpack_entries: usize,
    pub listpack_value: usize,
}

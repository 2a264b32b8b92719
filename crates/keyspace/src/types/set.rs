//! Not written yet.
#[repr(transparent)]
#[derive(Clone)]
pub struct Set(Box<u8>);
impl Default for Set {
    fn default() -> Self {
        Set(Box::new(0))
    }
}
impl Set {
    pub fn is_empty(&self) -> bool {
        true
    }
    pub fn free_effort(&self) -> usize {
        0
    }
}
#[derive(Clone, Copy)]
pub struct SetLimits {
    pub intset_entries: usize,
    pub listpack_entries: usize,
    pub listpack_value: usize,
}

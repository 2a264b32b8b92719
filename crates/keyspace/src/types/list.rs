//! Not written yet.
#[repr(transparent)]
#[derive(Clone)]
pub struct List(Box<u8>);
impl Default for List {
    fn default() -> Self {
        List(Box::new(0))
    }
}
impl List {
    pub fn is_empty(&self) -> bool {
        true
    }
    pub fn free_effort(&self) -> usize {
        0
    }
}
#[derive(Clone, Copy)]
pub struct ListLimits {
    pub listpack_size: i64,
}

//! A decoded picture.

/// Pixels, row by row, 8 bits per channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pixels {
    /// In pixels.
    pub width: u32,
    /// In pixels.
    pub height: u32,
    /// 1: grey, 2: grey and alpha, 3: RGB, 4: RGB and alpha.
    pub channels: u8,
    /// Exactly the number of bytes given by these values.
    pub data: Vec<u8>,
}

impl Pixels {
    /// True if the pixels have colours.
    pub fn has_colour(&self) -> bool {
        self.channels > 2
    }

    /// True if the pixels have alpha.
    pub fn has_alpha(&self) -> bool {
        self.channels.is_multiple_of(2)
    }

    /// Converts to RGB, and keeps alpha: for formats without grey.
    pub fn into_colour(self) -> Self {
        let data = match self.channels {
            1 => self.data.iter().flat_map(|grey| [*grey; 3]).collect(),
            2 => self
                .data
                .as_chunks()
                .0
                .iter()
                .flat_map(|[grey, alpha]| [*grey, *grey, *grey, *alpha])
                .collect(),
            _ => return self,
        };
        Self { channels: self.channels + 2, data, ..self }
    }

    /// Removes alpha by blending with white: for formats without transparency.
    pub fn into_opaque(self) -> Self {
        let data = match self.channels {
            2 => self.data.as_chunks().0.iter().map(|[grey, alpha]| over_white(*grey, *alpha)).collect(),
            4 => {
                let pixels = self.data.as_chunks().0.iter();
                pixels
                    .flat_map(|[r, g, b, alpha]| [*r, *g, *b].map(|value| over_white(value, *alpha)))
                    .collect()
            }
            _ => return self,
        };
        Self { channels: self.channels - 1, data, ..self }
    }
}

fn over_white(value: u8, alpha: u8) -> u8 {
    let (value, alpha) = (u32::from(value), u32::from(alpha));
    ((value * alpha + 255 * (255 - alpha) + 127) / 255) as u8
}

//! The options of a conversion.

use std::borrow::Cow;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};
use thalweg_config::{FormatError, nearest, register_format};
use thalweg_engine::Mistake;
use thalweg_media::image::{self, Conversion, Format, Resize};

const FORMAT: &str = "image-type";

/// The short names of types, for suggestions.
const NAMES: [&str; 7] = ["jpeg", "png", "webp", "gif", "tiff", "avif", "heic"];

/// A type of picture: `webp` or `image/webp`.
#[derive(Debug, Clone, Copy)]
pub struct ImageType(pub Format);

impl FromStr for ImageType {
    type Err = FormatError;

    fn from_str(text: &str) -> Result<Self, FormatError> {
        let short = text.to_ascii_lowercase();
        let short = match short.as_str() {
            "jpg" => "jpeg",
            "tif" => "tiff",
            other => other,
        };
        let found = Format::from_mime(short).or_else(|| Format::from_mime(&format!("image/{short}")));
        found.map(Self).ok_or_else(|| {
            let mistake = FormatError::new(format!("`{text}` is not a type of picture."));
            let short = short.strip_prefix("image/").unwrap_or(short);
            mistake.help(match nearest(short, NAMES) {
                Some(near) => format!("Did you mean `{near}`?"),
                None => format!("There are: {}.", NAMES.join(", ")),
            })
        })
    }
}

impl<'de> Deserialize<'de> for ImageType {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(|error: FormatError| serde::de::Error::custom(error.message))
    }
}

impl JsonSchema for ImageType {
    fn schema_name() -> Cow<'static, str> {
        "ImageType".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        register_format(FORMAT, |text| text.parse::<ImageType>().map(drop));
        json_schema!({ "type": "string", "format": FORMAT, "examples": ["webp", "image/jpeg"] })
    }
}

/// The quality of a lossy compression: a word, or a number from 1 to 100.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Quality {
    /// A word.
    Word(Word),
    /// A number.
    Number(u8),
}

/// The quality of a lossy compression.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Word {
    /// Quality 100.
    Best,
    /// Quality 75.
    High,
    /// Quality 50.
    Medium,
    /// Quality 25.
    Low,
}

impl Default for Quality {
    fn default() -> Self {
        Self::Word(Word::High)
    }
}

impl Quality {
    /// Returns the quality as a number from 1 to 100.
    pub fn number(self) -> u8 {
        match self {
            Self::Number(number) => number,
            Self::Word(Word::Best) => 100,
            Self::Word(Word::High) => 75,
            Self::Word(Word::Medium) => 50,
            Self::Word(Word::Low) => 25,
        }
    }
}

/// How a picture is fitted if both width and height are given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Fit {
    /// The proportions are kept, and neither side is longer than given.
    #[default]
    Inside,
    /// The proportions are kept. The picture fills the size, and the excess is cut off on both sides.
    Cover,
    /// The picture is stretched to the given size.
    Fill,
}

/// How pictures are treated that already have the type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Same {
    /// They stay as they are, unless a size is given.
    #[default]
    Keep,
    /// They are encoded again.
    Encode,
}

impl super::ConvertImage {
    /// Returns the conversion that the options describe.
    pub fn conversion(&self) -> Conversion {
        let fit = match self.fit {
            Fit::Inside => image::Fit::Inside,
            Fit::Cover => image::Fit::Cover,
            Fit::Fill => image::Fit::Fill,
        };
        let resize = Resize { width: self.width, height: self.height, fit, enlarge: self.enlarge };
        Conversion {
            to: self.to.0,
            quality: self.quality.number(),
            effort: self.effort,
            size: (self.width.is_some() || self.height.is_some()).then_some(resize),
            rotate: self.rotate,
            strip: self.strip,
            is_upright: false,
        }
    }

    /// Returns the mistakes that the schema cannot find.
    pub fn mistakes(&self) -> Vec<Mistake> {
        let mut mistakes = Vec::new();
        if let Some(advice) = image::not_written(self.to.0) {
            let message = format!("{} cannot be written.", self.to.0);
            mistakes.push(Mistake::new("to", message).help(advice));
        }
        let quality = self.quality.number();
        if !(1..=100).contains(&quality) {
            let help = "It is a number, or one of `best`, `high`, `medium` and `low`.";
            let message = format!("`quality` is {quality}, but it must be 1 to 100.");
            mistakes.push(Mistake::new("quality", message).help(help));
        }
        if let Some(effort) = self.effort.filter(|effort| *effort > 6) {
            mistakes.push(Mistake::new("effort", format!("`effort` is {effort}, but it must be 0 to 6.")));
        }
        for (option, side) in [("width", self.width), ("height", self.height)] {
            if side == Some(0) {
                mistakes.push(Mistake::new(option, format!("`{option}` must be at least 1 pixel.")));
            }
        }
        if self.fit != Fit::Inside && (self.width.is_none() || self.height.is_none()) {
            let help = "Give both, or leave `fit` out.";
            mistakes.push(
                Mistake::new("fit", "`fit` has an effect only with both `width` and `height`.").help(help),
            );
        }
        mistakes
    }
}

#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace rowlock::cli {

/// How many columns of text the terminal has on which standard output is written; 0 if it is none.
[[nodiscard]] std::size_t output_width() noexcept;

/// How many columns of a terminal the text takes: two for a wide character, none for a combining
/// one.
[[nodiscard]] std::size_t width_of(std::string_view text) noexcept;
/// The text, or its beginning and an ellipsis.
[[nodiscard]] std::string cut(const std::string& text, std::size_t width);
/// The text, or its beginning, an ellipsis and its end: names often differ only there.
[[nodiscard]] std::string cut_middle(const std::string& text, std::size_t width);

/// Columns as wide as their widest cell, under the headings; numbers and times to the right. Cells
/// are escaped here. On a terminal, columns without contents are left out; if the rest is too wide,
/// long texts are cut, then the columns that matter least are left out, too, and last the names of
/// locks are cut, in the middle. Elsewhere all of it is written.
/// @param width of the terminal; 0: none
[[nodiscard]] std::string table(const std::vector<std::string>& headings,
                                const std::vector<std::vector<std::string>>& rows,
                                std::size_t width = output_width());

}  // namespace rowlock::cli

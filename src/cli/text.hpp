#pragma once

#include <string>
#include <string_view>

namespace rowlock::cli {

/// Makes foreign text safe for a terminal and a single line: control characters, and characters
/// that turn or hide text, become \xNN or \u{…}; a backslash is doubled.
[[nodiscard]] std::string escaped(std::string_view text);

/// From now on complain() and report_failure() write JSON, as docs/json.md says.
void complain_in_json() noexcept;

/// One line on standard error: "rowlock: …", or {"warning": …}. The text is escaped.
void complain(std::string_view text) noexcept;

/// Reports why the tool ends: "rowlock: …", or {"error": …}. Without a message, plain text prints
/// nothing.
void report_failure(int code, const char* kind, std::string_view message) noexcept;

/// Writes all of it to standard output and flushes.
/// @throws failure exit code 74
void print(std::string_view text);

/// Asks the person at the terminal, on standard error.
/// @throws failure unless the answer is yes; exit code 64 saying `otherwise` if there is no person
/// to ask
void require_consent(std::string_view question, const std::string& otherwise);

}  // namespace rowlock::cli

#include "cli/text.hpp"

#include "base/utf8.hpp"
#include "cli/exit_code.hpp"
#include "cli/json.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <iostream>

namespace rowlock::cli {
namespace {

bool in_json = false;

std::size_t sequence_length(std::string_view text) {
    for (std::size_t length = 1; length <= std::min<std::size_t>(4, text.size()); ++length) {
        if (utf8::check(text.substr(0, length)) != utf8::verdict::malformed) return length;
    }
    return 0;
}

std::uint32_t code_point(std::string_view sequence) {
    const auto lead = static_cast<unsigned char>(sequence.front());
    if (sequence.size() == 1) return lead;
    std::uint32_t point = lead & (0xFFu >> (sequence.size() + 1));
    for (const char c : sequence.substr(1)) {
        point = point << 6 | (static_cast<unsigned char>(c) & 0x3Fu);
    }
    return point;
}

/// Control characters, line separators, and characters that turn the direction of text or are
/// invisible.
bool misleads(std::uint32_t point) {
    return point < 0x20 || (point >= 0x7F && point < 0xA0) || point == 0xAD || point == 0x61C ||
           (point >= 0x200B && point <= 0x200F) || (point >= 0x2028 && point <= 0x202E) ||
           (point >= 0x2060 && point <= 0x206F) || point == 0xFEFF ||
           (point >= 0xFFF9 && point <= 0xFFFB) || (point >= 0xE0000 && point <= 0xE0FFF);
}

bool write_all(int descriptor, std::string_view text) noexcept {
    while (!text.empty()) {
        const ssize_t written = ::write(descriptor, text.data(), text.size());
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return false;
        text.remove_prefix(static_cast<std::size_t>(written));
    }
    return true;
}

}  // namespace

std::string escaped(std::string_view text) {
    std::string out;
    out.reserve(text.size());
    while (!text.empty()) {
        const std::size_t length = sequence_length(text);
        if (length == 0) {
            out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text.front()));
            text.remove_prefix(1);
            continue;
        }
        const std::uint32_t point = code_point(text.substr(0, length));
        if (point == '\\') {
            out += "\\\\";
        } else if (!misleads(point)) {
            out += text.substr(0, length);
        } else {
            out +=
                point < 0x80 ? fmt::format("\\x{:02x}", point) : fmt::format("\\u{{{:x}}}", point);
        }
        text.remove_prefix(length);
    }
    return out;
}

void complain_in_json() noexcept {
    in_json = true;
}

void complain(std::string_view text) noexcept {
    try {
        const std::string plain = "rowlock: " + escaped(text) + "\n";
        write_all(STDERR_FILENO,
                  in_json ? json_line({{"warning", {{"message", std::string{text}}}}}) : plain);
    } catch (...) {
        write_all(STDERR_FILENO, "rowlock: out of memory\n");
    }
}

void report_failure(int code, const char* kind, std::string_view message) noexcept {
    if (!in_json) {
        if (!message.empty()) complain(message);
        return;
    }
    try {
        const std::string text = message.empty() ? "ended by a signal" : std::string{message};
        write_all(STDERR_FILENO,
                  json_line({{"error", {{"code", code}, {"kind", kind}, {"message", text}}}}));
    } catch (...) {
        write_all(STDERR_FILENO, "rowlock: out of memory\n");
    }
}

void print(std::string_view text) {
    if (write_all(STDOUT_FILENO, text)) return;
    throw failure{output_failed,
                  std::string{"the output could not be written: "} + std::strerror(errno)};
}

void require_consent(std::string_view question, const std::string& otherwise) {
    if (isatty(STDIN_FILENO) == 0) throw failure{usage, otherwise};
    write_all(STDERR_FILENO, question);
    std::string answer;
    std::getline(std::cin, answer);
    if (answer != "y" && answer != "Y" && answer != "yes") {
        throw failure{answer_is_no, "nothing was done"};
    }
}

}  // namespace rowlock::cli

// The tool prints a name or a note as one line without control characters, from which every byte
// can be recovered.

#include "cli/table.hpp"
#include "cli/text.hpp"
#include "fuzz/reference.hpp"
#include "fuzz/target.hpp"

#include <cstdlib>

namespace {

void append_utf8(std::string& text, unsigned long point) {
    const auto tail = [&](int shift) {
        text += static_cast<char>(0x80 | ((point >> shift) & 0x3F));
    };
    if (point < 0x80) {
        text += static_cast<char>(point);
    } else if (point < 0x800) {
        text += static_cast<char>(0xC0 | (point >> 6));
        tail(0);
    } else if (point < 0x10000) {
        text += static_cast<char>(0xE0 | (point >> 12));
        tail(6), tail(0);
    } else {
        text += static_cast<char>(0xF0 | (point >> 18));
        tail(12), tail(6), tail(0);
    }
}

std::string unescaped(const std::string& shown) {
    std::string text;
    for (std::size_t at = 0; at < shown.size(); ++at) {
        if (shown[at] != '\\') {
            text += shown[at];
            continue;
        }
        const char kind = shown.at(++at);
        if (kind == 'x') {
            text += static_cast<char>(std::stoul(shown.substr(at + 1, 2), nullptr, 16));
            at += 2;
        } else if (kind == 'u') {
            const std::size_t end = shown.find('}', at);
            append_utf8(text, std::stoul(shown.substr(at + 2, end - at - 2), nullptr, 16));
            at = end;
        } else {
            fuzz::require(kind == '\\', "an escape is known", shown);
            text += kind;
        }
    }
    return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string text = fuzz::input{data, size}.all();
    const std::string shown = rowlock::cli::escaped(text);
    fuzz::require(fuzz::is_utf8(shown), "a terminal is sent UTF-8", shown);
    fuzz::require(!fuzz::has_control(shown.substr(0, shown.find("\xF4\x8F\xBF\xBF"))),
                  "a terminal is sent no control character", shown);
    fuzz::require(unescaped(shown) == text, "no byte is lost", shown);
    for (const std::size_t width : {std::size_t{0}, std::size_t{40}}) {
        const std::string table =
            rowlock::cli::table({"name", "note"}, {{text, "x"}, {"y", text}}, width);
        std::size_t lines = 0;
        for (std::size_t begin = 0; begin < table.size(); ++lines) {
            const auto end = table.find('\n', begin);
            const auto line = table.substr(begin, end - begin);
            fuzz::require(width == 0 || rowlock::cli::width_of(line) <= width,
                          "a row is no wider than the terminal", table);
            fuzz::require(fuzz::is_utf8(line), "a cut text is UTF-8", table);
            begin = end + 1;
        }
        fuzz::require(lines == 3, "a row is one line", table);
    }
    return 0;
}

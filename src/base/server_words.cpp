#include "base/server_words.hpp"

#include <rowlock/error.hpp>

#include <string_view>

namespace rowlock::base {
namespace {

void erase_first(std::string& text, std::string_view what) {
    if (const auto at = text.find(what); at != std::string::npos) text.erase(at, what.size());
}

/// Lines of a server's text, such as libpq's, become one.
std::string on_one_line(std::string_view text) {
    std::string line;
    for (const char each : text) {
        const bool blank = each == '\n' || each == '\r' || each == '\t' || each == ' ';
        if (!blank) {
            line += each;
        } else if (!line.empty() && line.back() != ' ') {
            line += ' ';
        }
    }
    while (!line.empty() && line.back() == ' ') line.pop_back();
    return line;
}

}  // namespace

std::string with_server_words(const std::exception& failure) {
    std::string text = failure.what();
    const auto* const reported = dynamic_cast<const error*>(&failure);
    if (reported == nullptr) return text;
    const std::string state =
        reported->sqlstate().empty() ? "" : "SQLSTATE " + reported->sqlstate();
    erase_first(text, ": see server_message()");
    if (!state.empty()) erase_first(text, " (" + state + ")");
    const std::string& words = reported->server_message();
    const std::string line = on_one_line(words);
    if (!line.empty() && text.find(words) == std::string::npos &&
        text.find(line) == std::string::npos) {
        text += "; the server says: " + line;
    }
    const std::string number =
        reported->native_code() == 0 ? "" : "error " + std::to_string(reported->native_code());
    if (state.empty() && number.empty()) return text;
    return text + " (" + state + (state.empty() || number.empty() ? "" : ", ") + number + ")";
}

}  // namespace rowlock::base

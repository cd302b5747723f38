#pragma once

#include <rowlock/sql/connection.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace rowlock::sql {

/// Builds, item by item, an array in the text form that PostgreSQL reads.
class array_text {
public:
    void add(std::int64_t number) { next() += std::to_string(number); }
    template <sql::typed_integer Integer>
    void add(Integer number) {
        add(static_cast<std::int64_t>(number));
    }
    void add(std::optional<std::int64_t> number) {
        next() += number ? std::to_string(*number) : "null";
    }
    void add(std::string_view text) {
        next() += '"';
        for (const char c : text) {
            if (c == '"' || c == '\\') text_ += '\\';
            text_ += c;
        }
        text_ += '"';
    }
    /// NULL for an empty text.
    void add_or_null(std::string_view text) {
        if (text.empty()) {
            next() += "null";
        } else {
            add(text);
        }
    }
    /// Called once all items are added.
    [[nodiscard]] const std::string& close() {
        if (text_.empty()) text_ = '{';
        return text_ += '}';
    }

private:
    std::string& next() { return text_ += text_.empty() ? '{' : ','; }

    std::string text_;
};

}  // namespace rowlock::sql

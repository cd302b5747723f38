// Lists are sent to PostgreSQL as one text, from which it must read the same elements, whatever
// they contain. Source of the reader: PostgreSQL documentation, section 8.15.6.

#include "sql/array_text.hpp"

#include "fuzz/target.hpp"

#include <algorithm>
#include <optional>
#include <vector>

namespace {

using item = std::optional<std::string>;

/// Reads an array of one dimension as the server does.
class array_reader {
public:
    explicit array_reader(std::string_view text) : rest_{text} {}

    std::vector<item> items() {
        std::vector<item> read;
        expect('{');
        if (rest_.starts_with('}')) {
            rest_.remove_prefix(1);
        } else {
            do {
                read.push_back(next());
            } while (took(','));
            expect('}');
        }
        fuzz::require(rest_.empty(), "no text follows an array", rest_);
        return read;
    }

private:
    void expect(char c) { fuzz::require(took(c), "an array is well-formed", rest_); }
    bool took(char c) {
        if (!rest_.starts_with(c)) return false;
        rest_.remove_prefix(1);
        return true;
    }
    item next() {
        std::string text;
        if (took('"')) {
            while (!took('"')) {
                (void)took('\\');
                fuzz::require(!rest_.empty(), "a quoted item ends");
                text += rest_.front();
                rest_.remove_prefix(1);
            }
            return text;
        }
        const std::size_t end = std::min(rest_.find_first_of("{},\"\\ \t\n"), rest_.size());
        text = rest_.substr(0, end);
        rest_.remove_prefix(end);
        fuzz::require(!text.empty(), "an item without quotes is not empty");
        if (text == "null") return std::nullopt;
        return text;
    }

    std::string_view rest_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::input from{data, size};
    rowlock::sql::array_text made;
    std::vector<item> meant;
    while (!from.empty()) {
        switch (from.below(4)) {
            case 0: {
                const std::int64_t number = from.number();
                made.add(number);
                meant.emplace_back(std::to_string(number));
                break;
            }
            case 1:
                made.add(std::optional<std::int64_t>{});
                meant.emplace_back();
                break;
            case 2: {
                const std::string text = from.line();
                made.add_or_null(text);
                meant.push_back(text.empty() ? item{} : item{text});
                break;
            }
            default: {
                const std::string text = from.line();
                made.add(std::string_view{text});
                meant.emplace_back(text);
            }
        }
    }
    const std::string& text = made.close();
    fuzz::require(array_reader{text}.items() == meant, "an array holds what was put in", text);
    return 0;
}

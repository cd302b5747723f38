#include "cli/serve/feed.hpp"

#include "cli/serve/json_views.hpp"

#include <fmt/format.h>

#include <chrono>
#include <string_view>

namespace rowlock::cli::serving {
namespace {

using namespace std::chrono_literals;

/// So often a page hears of the server, and the server of a page that has gone.
constexpr auto silence = 10s;

/// The elements of a JSON array, separated by commas.
class list_text {
public:
    void add(std::string_view element) {
        if (!text_.empty()) text_ += ',';
        text_ += element;
    }
    [[nodiscard]] std::string str() const { return '[' + text_ + ']'; }

private:
    std::string text_;
};

}  // namespace

std::string changes_text(const seen& now, const seen* before) {
    list_text changed;
    list_text removed;
    for (const auto& [key, row] : now.rows) {
        if (before != nullptr) {
            const auto old = before->rows.find(key);
            if (old != before->rows.end() && old->second == row) continue;
        }
        changed.add(row);
    }
    if (before != nullptr) {
        for (const auto& [key, row] : before->rows) {
            if (!now.rows.contains(key)) removed.add(text_of(key));
        }
    }
    return fmt::format(
        R"({{"version":{},"at":{},"full":{},"more":{},"only_leases":{},"problem":{},)"
        R"("cycles":{},"removed":{},"locks":{}}})",
        now.version, milliseconds_of(now.all.at), before == nullptr, now.all.more,
        now.all.only_leases, now.problem.empty() ? "null" : text_of(now.problem),
        text_of(cycles_to_json(now.all)), removed.str(), changed.str());
}

std::optional<std::string> feed::next() {
    if (before_ == nullptr) {
        before_ = from_.latest();
        return "data: " + changes_text(*before_, nullptr) + "\n\n";
    }
    const auto now = from_.after(before_->version, silence);
    if (now == nullptr) {
        if (from_.is_stopped()) return std::nullopt;
        return ":\n\n";
    }
    auto text = "data: " + changes_text(*now, before_.get()) + "\n\n";
    before_ = now;
    return text;
}

}  // namespace rowlock::cli::serving

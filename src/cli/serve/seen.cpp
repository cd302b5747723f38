#include "cli/serve/seen.hpp"

#include "cli/serve/json_views.hpp"

#include <fmt/format.h>

#include <string_view>
#include <utility>

namespace rowlock::cli::serving {
namespace {

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

/// @param before null: all of it
std::string text_since(const seen& now, const seen* before) {
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
        R"({{"version":{},"at":{},"full":{},"more":{},"only_leases":{},"searched":{},"problem":{},)"
        R"("cycles":{},"removed":{},"locks":{}}})",
        now.version, milliseconds_of(now.all.at), before == nullptr, now.all.more,
        now.all.only_leases, now.all.searched, now.problem.empty() ? "null" : text_of(now.problem),
        text_of(cycles_to_json(now.all)), removed.str(), changed.str());
}

}  // namespace

seen seen_now(std::uint64_t version, view::snapshot all) {
    seen now{.version = version, .all = std::move(all)};
    for (const auto& each : now.all.locks) now.rows.emplace(key_of(each), row_text(each));
    now.text = text_since(now, nullptr);
    return now;
}

seen seen_before(std::uint64_t version, const seen& before, std::string problem) {
    seen now{
        .version = version, .all = before.all, .rows = before.rows, .problem = std::move(problem)};
    now.text = text_since(now, nullptr);
    return now;
}

std::string changes_text(const seen& now, const seen& before) {
    return text_since(now, &before);
}

}  // namespace rowlock::cli::serving

#pragma once

#include <string_view>
#include <vector>

/// Labels of the parties in the search for deadlocks. A hold has one: that of the thread that
/// acquired it, or one of its own where threads share it. A queue entry has that of the hold that
/// it becomes (column `thread`), and the labels of other holds that are not released before it has
/// been served (column `blocks`, "first|second|…"): those of its thread, and those that its thread
/// shares.
namespace rowlock::protocol {

inline constexpr char label_separator = '|';
/// Begins the label of a hold that threads share, and of no thread.
inline constexpr std::string_view label_of_readers = "readers ";

[[nodiscard]] inline std::vector<std::string_view> labels_in(std::string_view list) {
    std::vector<std::string_view> all;
    while (!list.empty()) {
        const auto end = list.find(label_separator);
        all.push_back(list.substr(0, end));
        list.remove_prefix(end == std::string_view::npos ? list.size() : end + 1);
    }
    return all;
}

}  // namespace rowlock::protocol

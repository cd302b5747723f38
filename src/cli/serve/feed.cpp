#include "cli/serve/feed.hpp"

#include <chrono>

namespace rowlock::cli::serving {
namespace {

using namespace std::chrono_literals;

/// So often a page hears of the server, and the server of a page that has gone.
constexpr auto silence = 10s;

bool write_event(const std::function<bool(std::string_view)>& write, std::string_view text) {
    return write("data: ") && write(text) && write("\n\n");
}

}  // namespace

bool feed::send(const std::function<bool(std::string_view)>& write) {
    if (before_ == nullptr) {
        before_ = from_.latest();
        return write_event(write, before_->text);
    }
    const auto now = from_.after(before_->version, silence);
    if (now == nullptr) return !from_.is_stopped() && write(":\n\n");
    const auto text = changes_text(*now, *before_);
    before_ = now;
    return write_event(write, text);
}

}  // namespace rowlock::cli::serving

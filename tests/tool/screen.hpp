#pragma once

#include "tool/tool.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <string>
#include <utility>

namespace tool {

/// A terminal of 24 lines in which a command of the tool runs.
class screen {
public:
    /// @param stays what the command has written is to be read after its end
    screen(const tables& in, arguments command, bool stays = false, int columns = 80) {
        std::string line = "env ROWLOCK_URL='" + in.url() + "'";
        for (const auto& word : command_line(in(std::move(command)))) {
            line += " '" + word + "'";
        }
        if (stays) line += "; sleep 60";
        REQUIRE(tmux({"-f", "/dev/null", "new-session", "-d", "-x", std::to_string(columns), "-y",
                      "24", line})
                    .code == 0);
    }
    ~screen() { tmux({"kill-server"}); }
    screen(const screen&) = delete;
    screen& operator=(const screen&) = delete;

    [[nodiscard]] std::string text() const { return tmux({"capture-pane", "-p"}).out; }
    [[nodiscard]] bool shows(const std::string& what, std::chrono::seconds limit = patience) const {
        return eventually([&] { return text().find(what) != std::string::npos; }, limit);
    }
    [[nodiscard]] bool hides(const std::string& what) const {
        return eventually([&] { return text().find(what) == std::string::npos; });
    }
    void type(const std::string& keys) const { CHECK(tmux({"send-keys", keys}).code == 0); }
    [[nodiscard]] bool is_over() const {
        return eventually([&] { return tmux({"has-session"}).code != 0; });
    }

private:
    answer tmux(const arguments& what) const {
        arguments all{"tmux", "-S", folder_ / "socket"};
        all.insert(all.end(), what.begin(), what.end());
        process made{all, {.variables = {{"TERM", "xterm"}, {"LC_ALL", "C.UTF-8"}}}};
        const int code = made.wait();
        return {code, made.out(), made.err()};
    }

    const scratch folder_;
};

}  // namespace tool

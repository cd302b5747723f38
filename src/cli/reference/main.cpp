#include "cli/command_line.hpp"
#include "cli/reference/command_page.hpp"
#include <rowlock/version.hpp>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>

/// reference FOLDER: writes man/*.1 and completions/rowlock.{bash,zsh,fish} there.
int main(int argc, char** argv) try {
    using namespace rowlock::cli;
    if (argc != 2) {
        std::fputs("usage: reference FOLDER\n", stderr);
        return 64;
    }
    const std::filesystem::path folder = argv[1];
    std::filesystem::remove_all(folder);
    const auto write = [](const std::filesystem::path& path, const std::string& text) {
        std::filesystem::create_directories(path.parent_path());
        std::ofstream file{path};
        file.exceptions(std::ios::badbit | std::ios::failbit);
        file << text << std::flush;
    };
    describe_to([&](const CLI::App& app) {
        const auto tool = reference::describe(app);
        const auto manual = [&](const reference::command_page& page, const std::string& name) {
            write(folder / "man" / (name + ".1"), manual_page(page, tool, rowlock::version_string));
        };
        manual(tool, "rowlock");
        for (const auto& each : tool.commands) manual(each, "rowlock-" + each.name);
        write(folder / "completions" / "rowlock.bash", bash_completion(tool));
        write(folder / "completions" / "rowlock.zsh", zsh_completion(tool));
        write(folder / "completions" / "rowlock.fish", fish_completion(tool));
    });
    return 0;
} catch (const std::exception& failed) {
    std::fprintf(stderr, "reference: %s\n", failed.what());
    return 1;
}

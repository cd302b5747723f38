// The tool runs its drivers with all its rights, so it loads them from one folder, and only files
// that no other user may write.

#include "cli/driver_module.hpp"
#include "cli/exit_code.hpp"
#include "cli/module_file.hpp"
#include "tool/tool.hpp"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

using namespace rowlock;
using tool::scratch;

namespace {

constexpr const char* file = "rowlock-postgresql.so";
const std::string url = "postgresql://ann:hunter2@localhost/shop";

/// `top/lib/rowlock` with a module that leaves a file when it is loaded.
class installation {
public:
    installation() {
        std::filesystem::create_directories(folder());
        ::chmod((place_ / "top").c_str(), 0755);
        ::chmod((place_ / "top/lib").c_str(), 0755);
        ::chmod(folder().c_str(), 0755);
        std::filesystem::copy_file(ROWLOCK_FOREIGN_MODULE, module());
        ::chmod(module().c_str(), 0644);
    }

    [[nodiscard]] std::string top() const { return place_ / "top"; }
    [[nodiscard]] std::string folder() const { return place_ / "top/lib/rowlock"; }
    [[nodiscard]] std::string module() const { return folder() + "/" + file; }
    [[nodiscard]] std::string loaded() const { return place_ / "loaded"; }

    /// The error, or an empty string if the module was loaded. Runs in its own process, since a
    /// module is never unloaded.
    [[nodiscard]] std::string refusal(const std::string& from, const std::string& proc = "/proc",
                                      bool group_may_write = false) const {
        const std::string words = place_ / "words";
        std::filesystem::remove(words);
        std::filesystem::remove(loaded());
        const pid_t child = ::fork();
        if (child == 0) {
            ::setenv("ROWLOCK_TEST_LOADED", loaded().c_str(), 1);
            int code = 0;
            try {
                static_cast<void>(cli::load_module({from, group_may_write}, file, proc));
            } catch (const cli::failure& failure) {
                std::ofstream{words} << failure.what();
                code = failure.code();
            }
            ::_exit(code);
        }
        int status = 0;
        REQUIRE(::waitpid(child, &status, 0) == child);
        const bool was_loaded = std::filesystem::exists(loaded());
        std::string said = tool::contents(words);
        CHECK(WIFEXITED(status));
        CHECK(WEXITSTATUS(status) == (was_loaded ? 0 : cli::misconfigured));
        CHECK(was_loaded == said.empty());
        return said;
    }
    [[nodiscard]] std::string refusal() const { return refusal(folder()); }

private:
    scratch place_;
};

bool has(const std::string& text, const std::string& part) {
    CAPTURE(text);
    return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a module that no other user may write is loaded") {
    const installation in;
    CHECK(in.refusal() == "");
    // Also through a link of a trusted user.
    std::filesystem::create_directory_symlink(in.folder(), in.top() + "/link");
    CHECK(in.refusal(in.top() + "/link") == "");
    CHECK(in.refusal(in.top() + "/lib/../link/.") == "");
}

TEST_CASE("a module that others may write is not loaded, nor one in a folder that they may write") {
    const installation in;
    for (const auto& each : {in.module(), in.folder(), in.top() + "/lib", in.top()}) {
        CAPTURE(each);
        struct stat was {};
        REQUIRE(::stat(each.c_str(), &was) == 0);
        for (const mode_t more : {mode_t{S_IWGRP}, mode_t{S_IWOTH}}) {
            REQUIRE(::chmod(each.c_str(), (was.st_mode & 07777) | more) == 0);
            const auto said = in.refusal();
            CHECK(has(said, each + " may be written by other users"));
        }
        REQUIRE(::chmod(each.c_str(), was.st_mode & 07777) == 0);
    }
    // The sticky bit protects existing files, but allows new ones.
    REQUIRE(::chmod(in.folder().c_str(), 01777) == 0);
    CHECK(has(in.refusal(), "may be written by other users"));
    REQUIRE(::chmod(in.folder().c_str(), 0755) == 0);
    CHECK(in.refusal() == "");
    // In a build folder the members of a group that may write could replace the tool itself.
    REQUIRE(::chmod(in.folder().c_str(), 0775) == 0);
    CHECK(in.refusal(in.folder(), "/proc", true) == "");
    REQUIRE(::chmod(in.folder().c_str(), 0777) == 0);
    CHECK(has(in.refusal(in.folder(), "/proc", true), "may be written by other users"));
}

TEST_CASE("a module, a folder or a link of another user is not followed") {
    if (::geteuid() != 0) {
        MESSAGE("only root can give a file to another user");
        return;
    }
    const installation in;
    constexpr uid_t other = 65534;
    for (const auto& each : {in.module(), in.folder(), in.top()}) {
        CAPTURE(each);
        REQUIRE(::chown(each.c_str(), other, other) == 0);
        CHECK(has(in.refusal(), each + " belongs to user 65534"));
        REQUIRE(::chown(each.c_str(), 0, 0) == 0);
    }
    const auto link = in.top() + "/link";
    std::filesystem::create_directory_symlink(in.folder(), link);
    REQUIRE(::lchown(link.c_str(), other, other) == 0);
    CHECK(has(in.refusal(link), link + " belongs to user 65534"));
}

TEST_CASE("a module behind a symbolic link, a missing one and a relative folder are refused") {
    const installation in;
    CHECK(has(in.refusal("top/lib/rowlock"), "is not an absolute path"));
    std::filesystem::rename(in.module(), in.top() + "/elsewhere.so");
    CHECK(has(in.refusal(), in.module() + " cannot be opened"));
    CHECK(has(in.refusal(), "install rowlock-postgresql of the same version"));
    std::filesystem::create_symlink(in.top() + "/elsewhere.so", in.module());
    CHECK(has(in.refusal(), in.module() + " is a symbolic link"));
    std::filesystem::remove(in.module());
    std::filesystem::create_directory(in.module());
    CHECK(has(in.refusal(), "is not a regular file"));
    CHECK(has(in.refusal(in.top() + "/none"), "/none cannot be opened"));
    CHECK(has(in.refusal(in.top() + "/none"), "install rowlock-postgresql of the same version"));
    std::filesystem::create_directory_symlink("cycle", in.top() + "/cycle");
    CHECK(has(in.refusal(in.top() + "/cycle"), "cycle of symbolic links"));
}

TEST_CASE("without /proc no module is loaded") {
    const installation in;
    const scratch no_proc;
    std::filesystem::create_directory(no_proc / "self");
    CHECK(has(in.refusal(in.folder(), no_proc.path()), "mount /proc"));
    CHECK(has(in.refusal(in.folder(), no_proc / "none"), "mount /proc"));
}

TEST_CASE("a module of another version is not called") {
    const installation in;
    void* const loaded = cli::load_module({in.folder()}, file);
    try {
        static_cast<void>(cli::module_in<cli::driver_module>(loaded, "rowlock_driver", file));
        FAIL("it was taken");
    } catch (const cli::failure& failure) {
        CHECK(failure.code() == cli::misconfigured);
        CHECK(has(failure.what(), "does not belong to rowlock"));
    }
}

TEST_CASE("an installed tool takes modules from the folder of its installation and nowhere else") {
    const scratch elsewhere;
    const std::string copy = elsewhere / "bin/rowlock";
    std::filesystem::create_directories(elsewhere / "bin");
    std::filesystem::create_directories(elsewhere / "lib/rowlock");
    std::filesystem::copy_file(ROWLOCK_INSTALLED_TOOL, copy);
    const std::string loaded = elsewhere / "loaded";
    const auto run = [&](const std::string& to) {
        tool::process one{
            {copy, "ls", "--url", to},
            {.variables = {{"ROWLOCK_TEST_LOADED", loaded}}, .folder = elsewhere / "bin"}};
        const int code = one.wait();
        return tool::answer{code, one.out(), one.err()};
    };
    // SQLite needs no module.
    const auto in = tool::sqlite_tables();
    CHECK(run(in->url()).code == 0);
    for (const auto& planted : {elsewhere / "bin", elsewhere / "lib/rowlock"}) {
        std::filesystem::copy_file(ROWLOCK_FOREIGN_MODULE, planted + "/" + file);
    }
    const auto refused = run(url);
    CHECK(refused.code == cli::misconfigured);
    CHECK(has(refused.err, ROWLOCK_INSTALLED_MODULES));
    CHECK_FALSE(has(refused.err, "hunter2"));
    CHECK_FALSE(std::filesystem::exists(loaded));
}

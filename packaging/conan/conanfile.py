# Conan 2: conan create packaging/conan --build=missing
import os
import re

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load, rmdir
from conan.tools.system.package_manager import Apt

required_conan_version = ">=2.0"


class RowlockConan(ConanFile):
    name = "rowlock"
    description = "Distributed locks in the SQL database you already run"
    license = "MIT"
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    options = {
        "shared": [True, False],
        "fPIC": [True, False],
        "postgresql": [True, False],
        "mysql": [True, False],
        "sqlite": [True, False],
        "soci": [True, False],
        # Database libraries of the Debian system in place of Conan's. One process must not have two of them.
        "system_libraries": [True, False],
    }
    default_options = {
        "shared": False,
        "fPIC": True,
        "postgresql": True,
        # Conan's mysql-connector-cpp lacks the API that the driver uses, so these need system_libraries.
        "mysql": False,
        "soci": False,
        "sqlite": True,
        "system_libraries": False,
    }

    drivers = ("postgresql", "mysql", "sqlite", "soci")
    # The requirement, and its component that the driver links.
    conan_packages = {
        "postgresql": ("libpq/[>=15 <18]", "libpq::pq"),
        "sqlite": ("sqlite3/[>=3.40 <4]", "sqlite3::sqlite"),
    }
    debian_packages = {
        "postgresql": ("libpq-dev",),
        "mysql": ("libmysqlcppconn-dev",),
        "sqlite": ("libsqlite3-dev",),
        "soci": ("libsoci-dev", "libpq-dev", "libmariadb-dev", "libsqlite3-dev"),
    }
    system_libs = {
        "postgresql": ("pq",),
        "mysql": ("mysqlcppconn",),
        "sqlite": ("sqlite3",),
        "soci": ("soci_postgresql", "soci_mysql", "soci_sqlite3", "soci_core", "pq", "mariadb", "sqlite3"),
    }

    def _sources(self):
        return os.path.normpath(os.path.join(self.recipe_folder, os.pardir, os.pardir))

    def _enabled(self):
        return [driver for driver in self.drivers if self.options.get_safe(driver)]

    def set_version(self):
        header = load(self, os.path.join(self._sources(), "include", "rowlock", "version.hpp"))
        self.version = ".".join(re.findall(r"#define ROWLOCK_VERSION_\w+ (\d+)", header))

    def export_sources(self):
        for pattern in ("CMakeLists.txt", "LICENSE", "cmake/*", "include/*", "migrations/*", "src/*"):
            copy(self, pattern, src=self._sources(), dst=self.export_sources_folder)

    def configure(self):
        if self.options.shared:
            self.options.rm_safe("fPIC")

    def validate(self):
        if self.settings.os != "Linux":
            raise ConanInvalidConfiguration("rowlock supports Linux only")
        if self.settings.compiler.get_safe("cppstd"):
            check_min_cppstd(self, 20)
        without = [driver for driver in self._enabled() if driver not in self.conan_packages]
        if without and not self.options.system_libraries:
            raise ConanInvalidConfiguration(f"the drivers {', '.join(without)} need -o 'rowlock/*:system_libraries=True'")

    def requirements(self):
        if not self.options.system_libraries:
            for driver in self._enabled():
                if driver in self.conan_packages:
                    self.requires(self.conan_packages[driver][0])

    def build_requirements(self):
        if not self.options.system_libraries:
            self.tool_requires("cmake/[>=3.25]")

    def system_requirements(self):
        if self.options.system_libraries:
            wanted = {package for driver in self._enabled() for package in self.debian_packages[driver]}
            Apt(self).install(sorted(wanted), check=True)

    def layout(self):
        cmake_layout(self)

    def generate(self):
        toolchain = CMakeToolchain(self)
        for driver in self.drivers:
            toolchain.cache_variables[f"ROWLOCK_{driver.upper()}"] = driver in self._enabled()
        for part in ("TOOL", "EXAMPLES", "TESTS"):
            toolchain.cache_variables[f"ROWLOCK_{part}"] = False
        toolchain.generate()
        CMakeDeps(self).generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        copy(self, "LICENSE", src=self.source_folder, dst=os.path.join(self.package_folder, "licenses"))
        CMake(self).install()
        for folder in ("lib/cmake", "lib/pkgconfig", "share"):
            rmdir(self, os.path.join(self.package_folder, folder))

    def package_info(self):
        self.cpp_info.set_property("cmake_file_name", "rowlock")

        def component(name, requires):
            info = self.cpp_info.components[name]
            info.set_property("cmake_target_name", f"rowlock::{name}")
            info.set_property("pkg_config_name", f"rowlock-{name}")
            info.libs = [f"rowlock_{name}"]
            info.requires = requires
            return info

        component("core", []).system_libs = ["pthread"]
        for driver in self._enabled():
            if self.options.system_libraries:
                component(driver, ["core"]).system_libs = list(self.system_libs[driver])
            else:
                component(driver, ["core", self.conan_packages[driver][1]])
        component("drivers", ["core", *self._enabled()])

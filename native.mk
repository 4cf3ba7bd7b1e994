# The kernel library and its tests, all below build/. A missing tool is named together with its Debian package.
#
# Flags: no fast-math and no contraction into fused multiply-add, so that results repeat across compilers and machines.
# Given up are errno and floating-point traps, which change no value but let loops with a choice in them be vectorised.
# The instruction set is the platform's baseline; files under src/arch/ get their own flags.
# Warnings are errors in the sanitiser and arm64 builds only: a newer compiler must not keep the application from starting.
NATIVE_WARNINGS := -Wall -Wextra -Wpedantic -Wshadow -Wconversion
NATIVE_CFLAGS := -O3 -std=c11 -fPIC -fvisibility=hidden -fno-math-errno -fno-trapping-math -ffp-contract=off \
  $(NATIVE_WARNINGS) -Inative/include -Inative/src
NATIVE_CHECKED_CFLAGS := $(NATIVE_CFLAGS) -Werror -O1 -g -fno-omit-frame-pointer -DH3K_POISON
NATIVE_DEBUG_CFLAGS := $(NATIVE_CHECKED_CFLAGS) -fsanitize=address,undefined -fno-sanitize-recover=all
NATIVE_TSAN_CFLAGS := $(NATIVE_CHECKED_CFLAGS) -O2 -fsanitize=thread
NATIVE_SOURCES := $(wildcard native/src/*.c)
native_here := $(patsubst amd64,x86_64,$(patsubst aarch64,arm64,$(shell uname -m)))
NATIVE_OBJECTS := $(patsubst native/src/%.c,build/native/obj/%.o,$(NATIVE_SOURCES) $(wildcard native/src/arch/$(native_here)/*.c))
NATIVE_DEBUG_OBJECTS := $(NATIVE_OBJECTS:build/native/%=build/native-debug/%)
NATIVE_TSAN_OBJECTS := $(NATIVE_OBJECTS:build/native/%=build/native-tsan/%)
NATIVE_ARM64_SOURCES := $(NATIVE_SOURCES) $(wildcard native/src/arch/arm64/*.c)
NATIVE_TESTS := $(wildcard native/tests/test_*.c)
NATIVE_HEADERS := $(wildcard native/include/*.h native/src/*.h native/src/arch/*.h native/src/arch/*/*.h native/tests/*.h)
NATIVE_LINK := -lm -lpthread

# A file under src/arch/ names its instruction set after the last underscore.
NATIVE_FLAGS_avx2 := -mavx2 -mfma -mf16c
NATIVE_FLAGS_avxvnni := $(NATIVE_FLAGS_avx2) -mavxvnni
NATIVE_FLAGS_avx512vnni := $(NATIVE_FLAGS_avx2) -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni
NATIVE_FLAGS_dotprod := -march=armv8.2-a+dotprod
NATIVE_FLAGS_i8mm := -march=armv8.2-a+dotprod+i8mm
# $(call isa_flags,source)
isa_flags = $(if $(findstring /arch/,$(1)),$(NATIVE_FLAGS_$(lastword $(subst _, ,$(basename $(notdir $(1)))))))

ifeq ($(shell uname -s),Darwin)
NATIVE_LIBRARY := build/native/libh3k.dylib
NATIVE_SHARED := -dynamiclib -arch arm64 -mmacosx-version-min=14.0 -install_name @rpath/libh3k.dylib \
  -Wl,-headerpad_max_install_names
else
NATIVE_LIBRARY := build/native/libh3k.so
NATIVE_SHARED := -shared
endif

native_fixed_addresses := $(shell setarch -R true 2>/dev/null && echo setarch -R)

# What a test links: its objects, less the pool for a test that brings its own loop (tests/big.h). $(call linked,test,files)
linked = $(filter-out %.h $(if $(findstring /test_big_,$(1)),%/thread_pool.o),$(2))

# $(call need,program,how to get it)
need = @command -v $(1) >/dev/null || { echo "$(1) is missing: $(2)"; exit 1; }

.PHONY: native bench-limits native-debug native-tsan test-native test-native-c test-arm64 test-avx512 native-macos

native: $(NATIVE_LIBRARY) ## Build the kernel library for this machine

$(NATIVE_LIBRARY): $(NATIVE_OBJECTS)
	@echo "  cc $@"
	@$(CC) $(NATIVE_SHARED) -o $@ $^ $(NATIVE_LINK)

build/native/obj/%.o: native/src/%.c native.mk
	$(call need,$(CC),apt-get install gcc libc6-dev (Mac: xcode-select --install))
	@mkdir -p $(@D)
	@echo "  cc $@"
	@$(CC) $(NATIVE_CFLAGS) $(call isa_flags,$<) -MMD -MP -c -o $@ $<

build/native/tests/%: native/tests/%.c $(NATIVE_OBJECTS) $(NATIVE_HEADERS)
	@mkdir -p $(@D)
	@echo "  cc $@"
	@$(CC) $(NATIVE_CFLAGS) -o $@ $(call linked,$@,$^) $(NATIVE_LINK)

test-native-c: $(patsubst native/tests/%.c,build/native/tests/%,$(NATIVE_TESTS)) ## Run the C tests of the kernels
	@set -e; for test in $^; do $$test; done

test-native: native test-native-c ## Run the C tests and the Python tests of the kernel library
	OMP_NUM_THREADS=1 $(PY) -m pytest -q -m native

bench-limits: build/native/bench/limits ## Measure what this machine can do at most
	@$<

build/native/bench/%: native/bench/%.c $(NATIVE_OBJECTS) $(wildcard native/bench/*.h)
	@mkdir -p $(@D)
	@echo "  cc $@"
	@$(CC) $(NATIVE_CFLAGS) -o $@ $(filter-out %.h,$^) $(NATIVE_LINK)

# ---- sanitisers: address and undefined behaviour; scratch holds NaN at the start of every tile (H3K_POISON) and not a byte
# too much
build/native-debug/obj/%.o: native/src/%.c native.mk
	$(call need,$(CC),apt-get install gcc libc6-dev (Mac: xcode-select --install))
	@mkdir -p $(@D)
	@echo "  cc $@"
	@$(CC) $(NATIVE_DEBUG_CFLAGS) $(call isa_flags,$<) -MMD -MP -c -o $@ $<

build/native-debug/tests/%: native/tests/%.c $(NATIVE_DEBUG_OBJECTS) $(NATIVE_HEADERS)
	@mkdir -p $(@D)
	@echo "  cc $@"
	@$(CC) $(NATIVE_DEBUG_CFLAGS) -o $@ $(call linked,$@,$^) $(NATIVE_LINK)

native-debug: $(NATIVE_TESTS:native/tests/%.c=build/native-debug/tests/%) ## Run the C tests under sanitisers
	@set -e; for test in $^; do $$test; done

# ---- the thread sanitiser excludes the others. It cannot map its shadow where addresses are drawn from all 32 bits, hence
# setarch -R; a report fails the test.
build/native-tsan/obj/%.o: native/src/%.c native.mk
	$(call need,$(CC),apt-get install gcc libc6-dev (Mac: xcode-select --install))
	@mkdir -p $(@D)
	@echo "  cc $@"
	@$(CC) $(NATIVE_TSAN_CFLAGS) $(call isa_flags,$<) -MMD -MP -c -o $@ $<

build/native-tsan/tests/%: native/tests/%.c $(NATIVE_TSAN_OBJECTS) $(NATIVE_HEADERS)
	@mkdir -p $(@D)
	@echo "  cc $@"
	@$(CC) $(NATIVE_TSAN_CFLAGS) -o $@ $(call linked,$@,$^) $(NATIVE_LINK)

native-tsan: $(NATIVE_TESTS:native/tests/%.c=build/native-tsan/tests/%) ## Run the C tests under the thread sanitiser
	@set -e; for test in $^; do TSAN_OPTIONS=halt_on_error=1 $(native_fixed_addresses) $$test; done

# ---- arm64 on Linux: cross-compiled, run under qemu as an M2 (max), an M1 (cortex-a76) and plain NEON (cortex-a72).
# SVE stays off: no Apple processor has it and qemu 7.2 computes wrong with it.
ARM64_CC := aarch64-linux-gnu-gcc
ARM64_QEMU := qemu-aarch64-static
ARM64_CPUS := max,sve=off cortex-a76 cortex-a72

build/arm64/obj/%.o: native/src/%.c native.mk
	$(call need,$(ARM64_CC),apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross)
	@mkdir -p $(@D)
	@echo "  cc $@"
	@$(ARM64_CC) $(NATIVE_CFLAGS) $(call isa_flags,$<) -Werror -MMD -MP -c -o $@ $<

build/arm64/tests/%: native/tests/%.c $(NATIVE_ARM64_SOURCES:native/src/%.c=build/arm64/obj/%.o) $(NATIVE_HEADERS)
	@mkdir -p $(@D)
	@echo "  cc $@"
	@$(ARM64_CC) $(NATIVE_CFLAGS) -Werror -static -o $@ $(call linked,$@,$^) $(NATIVE_LINK)

test-arm64: $(patsubst native/tests/%.c,build/arm64/tests/%,$(NATIVE_TESTS)) ## Run the C tests as arm64 code under qemu
	$(call need,$(ARM64_QEMU),apt-get install qemu-user-static)
	@set -e; for cpu in $(ARM64_CPUS); do echo "== $$cpu"; for test in $^; do $(ARM64_QEMU) -cpu $$cpu $$test; done; done

# ---- AVX-512 and VNNI, which few build machines have: each test becomes a ROM that the Bochs emulator runs from its reset
# vector (dev/emulator), some hundred times slower than a processor. Sets that dispatch.c does not list are passed over.
EMULATED_ISAS := $(filter avx512vnni avxvnni,$(shell grep -o '"avx[0-9a-z]*"' native/src/dispatch.c | tr -d '"'))
EMULATED_TESTS := test_integer test_norm test_attention test_activation
EMULATOR_CFLAGS := -O2 -std=gnu11 -Wall -Wextra -Werror -ffreestanding -fno-pic -fno-stack-protector -fcf-protection=none \
  -mgeneral-regs-only -mno-red-zone
EMULATOR_SOURCES := $(addprefix dev/emulator/,boot.S machine.c vex_vnni.c machine.ld)

build/emulator/cpu_features.o: native/src/cpu_features.c $(NATIVE_HEADERS)
	@mkdir -p $(@D)
	@$(CC) $(NATIVE_CFLAGS) -Dh3k_has_avxvnni=h3k_cpuid_has_avxvnni -c -o $@ $<

build/emulator/tests/%: native/tests/%.c dev/emulator/has_avxvnni.c build/emulator/cpu_features.o $(NATIVE_OBJECTS) \
  $(NATIVE_HEADERS)
	@mkdir -p $(@D)
	@echo "  cc $@"
	@$(CC) $(NATIVE_CFLAGS) -static -s -o $@ $(filter-out build/native/obj/cpu_features.o,$(call linked,$@,$^)) $(NATIVE_LINK)

build/emulator/tests/check_machine: dev/emulator/check_machine.c
	@mkdir -p $(@D)
	@echo "  cc $@"
	@$(CC) -O2 -std=c11 $(NATIVE_WARNINGS) -Werror $(NATIVE_FLAGS_avx512vnni) -static -s -o $@ $<

# $(call emulated_rom,instruction set)
define emulated_rom
build/emulator/$(1)/%.rom: build/emulator/tests/% $(EMULATOR_SOURCES)
	@mkdir -p $$(@D)
	@echo "  rom $$@"
	@$(CC) $(EMULATOR_CFLAGS) -DENVIRONMENT='"VIGNETTE_TEST_ISA=$(1)"' -DPROGRAM='"$$<"' -nostdlib -static -Wl,--build-id=none \
	  -Wl,--no-warn-rwx-segments -Wl,-T,dev/emulator/machine.ld -o $$@.elf $$(filter-out %.ld,$$(wordlist 2,9,$$^))
	@objcopy -O binary $$@.elf $$@
endef
$(foreach isa,avx512vnni avxvnni,$(eval $(call emulated_rom,$(isa))))

EMULATED_ROMS := build/emulator/avx512vnni/check_machine.rom \
  $(foreach isa,$(EMULATED_ISAS),$(EMULATED_TESTS:%=build/emulator/$(isa)/%.rom))

test-avx512: $(EMULATED_ROMS) ## Run C tests of the AVX-512 and VNNI kernels in an emulator
	$(call need,bochs,apt-get install bochs bochs-term)
	@bash dev/emulator/run.sh $^

# ---- the Mac library, built here with zig's bundled C compiler and libSystem stub; zig names a processor, not an architecture
zig_flags = $(patsubst -march=armv8.2-a%,-mcpu=apple_m1%,$(isa_flags))
MACOS_LIBRARY := build/macos/libh3k.dylib

native-macos: $(MACOS_LIBRARY) ## Cross-build the arm64 macOS library (needs ziglang 0.16.0)

build/macos/obj/%.o: native/src/%.c $(NATIVE_HEADERS) native.mk
	@$(PY) -c 'import ziglang' 2>/dev/null || { echo "ziglang is missing: $(PY) -m pip install ziglang==0.16.0"; exit 1; }
	@mkdir -p $(@D)
	@echo "  zig cc $@"
	@$(PY) -m ziglang cc -target aarch64-macos.14.0 $(NATIVE_CFLAGS) $(call zig_flags,$<) -c -o $@ $<

$(MACOS_LIBRARY): $(NATIVE_ARM64_SOURCES:native/src/%.c=build/macos/obj/%.o)
	@echo "  zig cc $@"
	@$(PY) -m ziglang cc -target aarch64-macos.14.0 -shared -o $@ $^ \
	  -Wl,-install_name,@rpath/libh3k.dylib -Wl,-headerpad_max_install_names

-include $(wildcard $(foreach dir,native native-debug native-tsan arm64,build/$(dir)/obj/*.d build/$(dir)/obj/arch/*/*.d))

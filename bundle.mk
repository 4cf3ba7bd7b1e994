# The macOS bundle, as far as Linux can build and start one. Everything is made outside the checkout.
BUNDLE_OUT ?= /tmp/vignette bundle

.PHONY: bundle-dry

bundle-dry: setup native native-macos ## Build the app bundle without its Mac parts and start it (minutes, 1.5 GB)
	rm -rf "$(BUNDLE_OUT)/dist" "$(BUNDLE_OUT)/build"
	$(PY) -m dev.bundle.dry_build "$(BUNDLE_OUT)"
	$(PY) -m dev.bundle.finish "$(BUNDLE_OUT)/dist/Vignette.app"
	$(PY) -m dev.bundle.boot "$(BUNDLE_OUT)/dist/Vignette.app"

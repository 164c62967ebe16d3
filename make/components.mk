# Grafana's own components, bundled: they draw the previews, and tell how panels show values.
.PHONY: components pictures

COMPONENTS := lab/panels/components
BUNDLED := $(TOOLS)/components

$(BUNDLED)/.installed: $(COMPONENTS)/package.json $(COMPONENTS)/package-lock.json $(COMPONENTS)/.npmrc
	@mkdir -p $(@D) && cp $^ $(@D)
	npm ci --prefix $(@D) --ignore-scripts --no-audit --no-fund --silent
	@touch $@

ESBUILD := node_modules/.bin/esbuild --bundle --log-level=error --define:process.env.NODE_ENV='"production"'
$(BUNDLED)/.bundled: $(BUNDLED)/.installed $(COMPONENTS)/prepared.js $(COMPONENTS)/fields.js $(COMPONENTS)/page.jsx
	@cp $(filter %.js %.jsx,$^) $(@D)
	@cd $(@D) && $(ESBUILD) fields.js --platform=node --format=esm --outfile=fields.mjs
	@cd $(@D) && $(ESBUILD) page.jsx --minify --jsx=automatic --outfile=page.js \
	  --loader:.ttf=empty --loader:.woff=empty --loader:.woff2=dataurl
	@touch $@

components: $(BUNDLED)/.bundled ## Bundle Grafana's components, which draw the dashboards' previews; needs npm

pictures: $(VENV)/.dev $(TOOLS)/.test components ## Draw previews of the dashboards into docs/
	$(LABORATORY) panels.draw

test-tools test-nightly: components

import { svelte } from '@sveltejs/vite-plugin-svelte'
import { defineConfig } from 'vite'

// A strict content security policy is served with the page: nothing may be inlined.
export default defineConfig({
  base: '/',
  plugins: [svelte()],
  build: {
    target: 'es2022',
    // The first ones with `light-dark()`, which the themes are made of.
    cssTarget: ['chrome123', 'firefox120', 'safari17.5'],
    outDir: 'dist',
    emptyOutDir: true,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 250,
  },
  server: {
    proxy: { '/v1': { target: 'http://127.0.0.1:7070', changeOrigin: true } },
  },
})
